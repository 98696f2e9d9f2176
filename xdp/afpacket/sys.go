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

// sendBudget is how many frames are sent by a call. So few that the Go scheduler
// need not know of it: see sendNothing of xdp.
const sendBudget = 16

// sendmmsg is what sends; tests put a fake kernel in its place.
var sendmmsg = sendMessages

// sendMessages sends some of the messages, at least one or none with an error.
func sendMessages(fd int, msgs []mmsghdr) (n int, e unix.Errno) {
	r, _, e := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&msgs[0])), uintptr(min(len(msgs), sendBudget)), unix.MSG_DONTWAIT, 0, 0)
	runtime.KeepAlive(msgs)
	return int(r), e
}
