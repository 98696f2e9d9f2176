package afpacket

import "golang.org/x/sys/unix"

// FakeSend puts f in the place of the call that sends: it is given how many frames
// there are to send.
func FakeSend(f func(n int) (int, unix.Errno)) {
	sendmmsg = func(_ int, msgs []mmsghdr) (int, unix.Errno) { return f(len(msgs)) }
}

// RealSend undoes it.
func RealSend() { sendmmsg = sendMessages }

// Slots is the size of the receive ring.
func (s *Socket) Slots() int { return len(s.held) }
