package xdp

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// hint says what to do about an error that the kernel's errno does not explain.
func hint(op string, err error) string {
	switch {
	case op == "register UMEM" && errors.Is(err, unix.ENOBUFS):
		return memlockHint()
	case op == "open socket" && errors.Is(err, unix.EPERM):
		return lacking(unix.CAP_NET_RAW)
	case op == "open socket" && errors.Is(err, unix.EAFNOSUPPORT):
		return "this kernel is built without CONFIG_XDP_SOCKETS"
	case op == "busy poll" && errors.Is(err, unix.EPERM):
		return lacking(unix.CAP_NET_ADMIN)
	case errors.Is(err, unix.EPERM):
		return lacking(unix.CAP_BPF, unix.CAP_NET_ADMIN)
	case op == "attach program" && errors.Is(err, unix.ERANGE):
		return "without multi-buffer XDP the MTU of this interface or its veth peer is too large: 3506 is the most"
	case op == "attach program" && errors.Is(err, unix.ENOSPC):
		return "it needs at least as many RX queues as its veth peer has TX queues"
	case op == "attach program" && errors.Is(err, unix.EOPNOTSUPP):
		return "the driver has no XDP, or not with the offloads that are on: virtio-net's rx-gro-hw and rx-checksumming are such"
	case op == "bind" && errors.Is(err, unix.ENETDOWN):
		return "set the interface up"
	}
	return ""
}

// memlockHint explains the ENOBUFS that means "too much locked memory".
func memlockHint() string {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lim); err != nil || lim.Cur == unix.RLIM_INFINITY {
		return "the kernel could not pin the memory"
	}
	return fmt.Sprintf("the frames must fit the limit of locked memory, now %d KiB: raise it (ulimit -l), ask for fewer frames, or run with CAP_IPC_LOCK",
		lim.Cur>>10)
}

var capNames = map[int]string{
	unix.CAP_NET_RAW: "CAP_NET_RAW", unix.CAP_NET_ADMIN: "CAP_NET_ADMIN", unix.CAP_BPF: "CAP_BPF",
}

// lacking names those of the capabilities that this process does not have.
func lacking(caps ...int) string {
	var missing []string
	for _, c := range caps {
		if !hasCap(c) {
			missing = append(missing, capNames[c])
		}
	}
	if len(missing) == 0 {
		return "refused although the capabilities are there: a security module or a user namespace forbids it"
	}
	return "it needs " + strings.Join(missing, " and ") + ": run as root or grant them"
}

// hasCap reports whether c is among the effective capabilities; CAP_SYS_ADMIN
// includes CAP_BPF.
func hasCap(c int) bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return false
	}
	has := func(c int) bool { return data[c/32].Effective&(1<<(c%32)) != 0 }
	return has(c) || c == unix.CAP_BPF && has(unix.CAP_SYS_ADMIN)
}
