package afpacket

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/caps"
	"github.com/urxe/urxe/internal/steps"
	"github.com/urxe/urxe/xdp"
)

// Options of Open. The zero value is right for most uses.
type Options struct {
	RxFrames int // of the ring, 4352 bytes each: 64 to 65536; 0: 2048
	TxFrames int // that may wait to be sent, 4224 bytes each: 64 to 65536; 0: 256
}

// Limits and defaults of Options.
const (
	minFrames, maxFrames = 64, 1 << 16
	defaultRx, defaultTx = 2048, 256
)

// MaxFrame is the longest frame in bytes that can be sent and received, from the
// Ethernet header on and with a VLAN tag: a path MTU of 4096 needs 4198.
const MaxFrame = 4224

func (o Options) sized() (Options, error) {
	if o.RxFrames == 0 {
		o.RxFrames = defaultRx
	}
	if o.TxFrames == 0 {
		o.TxFrames = defaultTx
	}
	for _, n := range []int{o.RxFrames, o.TxFrames} {
		if n < minFrames || n > maxFrames {
			return o, fmt.Errorf("afpacket: %d frames asked for: allowed are %d to %d a direction", n, minFrames, maxFrames)
		}
	}
	return o, nil
}

// Socket is the packet socket of an interface. Frames begin with the Ethernet header.
type Socket struct {
	ifname  string
	ifindex int

	fd     int // the packet socket
	sinkFD int // the UDP socket
	wakeFD int // eventfd: Wake

	ring []byte
	next uint32 // slot of the ring that is received next
	held []bool // by the slot: it is with the caller
	tx   sendQueue

	open    sync.RWMutex // Close against who may come at any time
	closed  atomic.Bool
	stuck   atomic.Bool // frames wait to be sent that the last Flush could not send
	addrsMu sync.Mutex
	addrs   [][16]byte
	stats   counters
}

// String says what was got.
func (s *Socket) String() string {
	return fmt.Sprintf("%s: packet socket, %d frames to receive, %d to send", s.ifname, len(s.held), len(s.tx.msgs))
}

// Open opens a packet socket on ifname, in the network namespace of the calling
// thread. It receives nothing before AddAddr. Close it. Errors name the step and what
// to do; they wrap the kernel's errno: EPERM without CAP_NET_RAW, EADDRINUSE when the
// UDP port is someone's, EPROTONOSUPPORT when it is no Ethernet.
func Open(ifname string, o Options) (*Socket, error) {
	o, err := o.sized()
	if err != nil {
		return nil, err
	}
	s := &Socket{ifname: ifname, fd: -1, sinkFD: -1, wakeFD: -1}
	for _, step := range []struct {
		op string
		do func() error
	}{
		{"find the interface", s.find},
		{"open packet socket", s.openFD},
		{"attach filter", s.setFilter}, // before bind: nothing else comes in
		{"open wake eventfd", s.openWake},
		{"ring", func() error { return s.mapRing(o.RxFrames) }},
		{"options", s.setOptions},
		{"take the UDP port", func() (err error) { s.sinkFD, err = openSink(); return err }},
		{"bind", s.bind},
	} {
		if err := steps.Do(step.op, step.do); err != nil {
			return nil, errors.Join(s.failed(step.op, err), s.teardown())
		}
	}
	s.tx.init(o.TxFrames)
	return s, nil
}

// failed makes the error of a step.
func (s *Socket) failed(op string, err error) error {
	err = fmt.Errorf("afpacket: %s: %s: %w", s.ifname, op, err)
	if h := hint(op, err); h != "" {
		err = fmt.Errorf("%w (%s)", err, h)
	}
	return err
}

// hint says what to do about an error that the kernel's errno does not explain.
func hint(op string, err error) string {
	switch {
	case op == "open packet socket" && errors.Is(err, unix.EPERM):
		return caps.Lacking(unix.CAP_NET_RAW)
	case op == "open packet socket" && errors.Is(err, unix.EAFNOSUPPORT):
		return "this kernel is built without CONFIG_PACKET"
	case op == "take the UDP port" && errors.Is(err, unix.EADDRINUSE):
		return "the kernel gets the same packets, and whoever has the port here, such as rdma_rxe, would answer them too: end that, or use AF_XDP"
	case op == "attach filter" && errors.Is(err, unix.ENOMEM):
		return "so many addresses need more memory than net.core.optmem_max gives a socket"
	case op == "ring" && errors.Is(err, unix.ENOMEM):
		return "ask for fewer frames"
	}
	return ""
}

func (s *Socket) find() error {
	l, err := netlink.LinkByName(s.ifname)
	if err != nil {
		return err
	}
	s.ifindex = l.Attrs().Index
	if t := l.Attrs().EncapType; t != "ether" && t != "loopback" {
		return fmt.Errorf("it is of type %s and carries no Ethernet frames: %w", t, unix.EPROTONOSUPPORT)
	}
	return nil
}

// openFD makes a socket of no protocol, which receives nothing before bind.
func (s *Socket) openFD() (err error) {
	s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	return err // Socket returns -1 with it
}

func (s *Socket) openWake() (err error) {
	s.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return err
}

// sendBuffer is how many bytes may be under way: each frame counts with what the
// kernel allocates for it. The default holds some 25 of the longest.
const sendBuffer = 4 << 20

func (s *Socket) setOptions() error {
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer) != nil {
		// Without CAP_NET_ADMIN, up to net.core.wmem_max.
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer)
	}
	for name, opt := range map[string]int{
		"PACKET_IGNORE_OUTGOING (Linux 4.20)": unix.PACKET_IGNORE_OUTGOING, // what we sent is not for us
		"PACKET_QDISC_BYPASS":                 unix.PACKET_QDISC_BYPASS,
	} {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, opt, 1); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (s *Socket) bind() error {
	all := uint16(unix.ETH_P_ALL)
	return unix.Bind(s.fd, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: s.ifindex})
}

// AddAddr takes packets to an address from now on: 16 bytes as in a GID, an IPv4
// address mapped into ::ffff:0:0/96. A multicast group's address is one, too. Adding
// it again changes nothing. After an error nothing has changed: xdp.ErrClosed, or one
// that wraps E2BIG or ENOMEM when there are too many (hundreds) for a filter.
func (s *Socket) AddAddr(addr [16]byte) error {
	return s.changeAddrs(func(list [][16]byte) [][16]byte {
		return append(without(list, addr), addr)
	})
}

// RemoveAddr takes no more packets to an address, if any were taken. Errors are those
// of AddAddr.
func (s *Socket) RemoveAddr(addr [16]byte) error {
	return s.changeAddrs(func(list [][16]byte) [][16]byte { return without(list, addr) })
}

func without(list [][16]byte, addr [16]byte) (rest [][16]byte) {
	for _, a := range list {
		if a != addr {
			rest = append(rest, a)
		}
	}
	return rest
}

func (s *Socket) changeAddrs(change func([][16]byte) [][16]byte) error {
	s.addrsMu.Lock()
	defer s.addrsMu.Unlock()
	s.open.RLock()
	defer s.open.RUnlock()
	if s.closed.Load() {
		return xdp.ErrClosed
	}
	old := s.addrs
	s.addrs = change(old)
	if err := s.setFilter(); err != nil {
		s.addrs = old
		return s.failed("attach filter", err)
	}
	return nil
}

// setFilter makes the kernel let in what the addresses say.
func (s *Socket) setFilter() error {
	f, err := filterFor(s.addrs)
	if err != nil {
		return err
	}
	return f.attach(s.fd)
}

// Close ends a Wait and frees everything. It may be called more than once. Errors are
// those of the kernel, and all is freed in spite of them.
func (s *Socket) Close() error {
	s.closed.Store(true)
	s.open.RLock()
	_, _ = unix.Write(s.wakeFD, one[:])
	s.open.RUnlock()
	s.open.Lock()
	defer s.open.Unlock()
	s.readDrops() // the kernel's last counters
	return s.teardown()
}

// teardown frees what there is, also of a socket that is half open.
func (s *Socket) teardown() (err error) {
	for _, fd := range []*int{&s.fd, &s.sinkFD, &s.wakeFD} {
		if *fd >= 0 {
			err = errors.Join(err, unix.Close(*fd))
			*fd = -1
		}
	}
	if s.ring != nil {
		err = errors.Join(err, unix.Munmap(s.ring))
		s.ring = nil
	}
	return err
}
