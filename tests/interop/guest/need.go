package guest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/urxe/urxe/internal/nettest"
)

// Need skips t, or fails it when URXE_REQUIRE is 1, unless this machine has all
// that a guest needs. It says what is missing.
func Need(t testing.TB) {
	t.Helper()
	if lack := lacking(); len(lack) > 0 {
		nettest.SkipOrFail(t, strings.Join(lack, ", ")+", for a QEMU guest")
	}
}

func lacking() (lack []string) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		lack = append(lack, "linux/amd64")
	}
	if os.Geteuid() != 0 {
		lack = append(lack, "root")
	}
	for _, c := range []struct{ command, from string }{
		{"qemu-system-x86_64", "qemu-system-x86"}, {"busybox", "busybox-static"},
		{"depmod", "kmod"}, {"cpio", "cpio"}, {"xz", "xz-utils"}, {"zstd", "zstd"},
		{"ip", "iproute2"}, {"flock", "util-linux"}, {"ibv_rc_pingpong", "ibverbs-utils"},
		{"rping", "rdmacm-utils"}, {"ib_write_bw", "perftest"}, {"tcpdump", "tcpdump"},
	} {
		if _, err := exec.LookPath(c.command); err != nil {
			lack = append(lack, fmt.Sprintf("%s (Debian package %s)", c.command, c.from))
		}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		lack = append(lack, "/dev/net/tun")
	}
	return lack
}
