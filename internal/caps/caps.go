// Package caps says which capabilities a refused process lacks.
package caps

import (
	"strings"

	"golang.org/x/sys/unix"
)

var names = map[int]string{
	unix.CAP_NET_RAW: "CAP_NET_RAW", unix.CAP_NET_ADMIN: "CAP_NET_ADMIN", unix.CAP_BPF: "CAP_BPF",
}

// Lacking names those of the capabilities that this process does not have, and
// what to do about it, for an error that the kernel gave for want of them.
func Lacking(list ...int) string {
	var missing []string
	for _, c := range list {
		if !Has(c) {
			missing = append(missing, names[c])
		}
	}
	if len(missing) == 0 {
		return "refused although the capabilities are there: a security module or a user namespace forbids it"
	}
	return "it needs " + strings.Join(missing, " and ") + ": run as root or grant them"
}

// Has reports whether c is among the effective capabilities; CAP_SYS_ADMIN
// includes CAP_BPF.
func Has(c int) bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return false
	}
	has := func(c int) bool { return data[c/32].Effective&(1<<(c%32)) != 0 }
	return has(c) || c == unix.CAP_BPF && has(unix.CAP_SYS_ADMIN)
}
