package umad

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// control makes an ioctl with the address of arg. It is unsafe only in that
// the kernel writes to arg; it has the size that the request's number says.
func control(f *os.File, request uint, arg []byte) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var p unsafe.Pointer
	if len(arg) > 0 {
		p = unsafe.Pointer(&arg[0])
	}
	var errno unix.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, uintptr(request), uintptr(p))
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return err
}
