package nettest

// The one ioctl that netlink has no message for. Unsafe for its pointer.

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// offloads turns checksum, scatter-gather and segmentation offload of an
// interface on or off, on a thread in its namespace.
func offloads(ifname string, on bool) error {
	if on {
		return nil // as a new veth has it
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// Segmentation first: it depends on checksums.
	for _, cmd := range []uint32{unix.ETHTOOL_STSO, unix.ETHTOOL_SGSO, unix.ETHTOOL_STXCSUM} {
		value := struct{ cmd, data uint32 }{cmd, 0}
		var req struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte // struct ifreq is longer than the pointer
		}
		copy(req.name[:len(req.name)-1], ifname)
		req.data = unsafe.Pointer(&value)
		_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
		runtime.KeepAlive(&value)
		if e != 0 && e != unix.EOPNOTSUPP {
			return fmt.Errorf("ethtool command %#x on %s: %w", cmd, ifname, e)
		}
	}
	return nil
}
