package xdp

import (
	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/steps"
)

// SetFailStep makes the step of Open fail for which f returns an error.
func SetFailStep(f func(op string) error) { steps.Fail = f }

// SetBudget sets how many packets one kick sends at most, as on older kernels.
func (s *Socket) SetBudget(n int) error {
	return unix.SetsockoptInt(s.fd, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, n)
}

// Frames is how many frames a packet has.
func (p *Packet) Frames() int { return int(p.n) }

// Debug is whether frames' owners are asserted.
const Debug = debug

// FD is the AF_XDP socket.
func (s *Socket) FD() int { return s.fd }
