package afpacket

// sendmmsg, which x/sys/unix has no function for: it is given the address of a
// slice, and that is all that is unsafe about this file.

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is struct mmsghdr.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
}

// briefSend is how many frames are sent before the Go scheduler need know of the
// call: telling it costs as much as one.
const briefSend = 4

// sendmmsg is what sends; tests put a fake kernel in its place.
var sendmmsg = sendMessages

// sendMessages sends messages, at least one or none with an error.
func sendMessages(fd int, msgs []mmsghdr) (n int, e unix.Errno) {
	call := unix.Syscall6
	if len(msgs) <= briefSend {
		call = unix.RawSyscall6
	}
	r, _, e := call(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&msgs[0])), uintptr(min(len(msgs), 1024)), unix.MSG_DONTWAIT, 0, 0)
	runtime.KeepAlive(msgs)
	return int(r), e
}
