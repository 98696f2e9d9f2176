package ibsim

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/internal/inbox"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// ctlTimeout is how long the simulator may take to answer a control message:
// it is one thread, which its console can also make wait.
const ctlTimeout = 5 * time.Second

// A node may have been told to lose what it gets.
const (
	guidTries   = 100
	guidTimeout = 50 * time.Millisecond
)

// Port is a mad.Port at a node of a simulated fabric.
type Port struct {
	name   string // Of the simulator, for errors.
	node   string
	socks  *sockets
	guid   ib.GUID
	client uint32
	in     *inbox.Inbox
	sm     atomic.Bool
	lost   atomic.Uint64
	bad    atomic.Uint64

	ctlMu sync.Mutex // One control message at a time.

	sendMu sync.Mutex
	buf    [dataSize]byte

	closing sync.Once
	reader  sync.WaitGroup
}

var _ mad.Port = (*Port)(nil)

// Open attaches to a node.
func Open(o Options) (*Port, error) {
	if len(o.Node) > maxNode {
		return nil, fmt.Errorf("ibsim: node %q: want a name of at most %d bytes", o.Node, maxNode)
	}
	p := &Port{node: o.Node}
	var err error
	if o.Server != "" {
		p.name = "ibsim at " + o.Server
		p.socks, err = dialUDP(o.Server)
	} else {
		if o.SockName == "" {
			o.SockName = defaultName
		}
		p.name = fmt.Sprintf("ibsim %q", o.SockName)
		p.socks, err = dialUnix(o.SockName)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	if o.Queue == 0 {
		o.Queue = 4096
	}
	p.in = inbox.New(o.Queue, p.resend)
	if err := p.attach(o); err != nil {
		p.socks.close()
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	p.reader.Go(p.read)
	return p, nil
}

// attach makes the simulator know this client.
func (p *Port) attach(o Options) error {
	info, err := p.control(ctlConnect, clientInfo(p.socks.id, o.Node, o.SM))
	if errors.Is(err, errRefused) {
		return fmt.Errorf("attaching to node %q: %w: it has no such node, or %d clients already, or an SM there", o.Node, err, maxClients)
	}
	if err != nil {
		return err
	}
	p.sm.Store(o.SM)
	p.client = host.Uint32(info[infoID:])
	if p.client >= maxClients {
		return fmt.Errorf("it numbers this client %d: want less than %d", p.client, maxClients)
	}
	p.node, _, _ = strings.Cut(string(info[infoNode:infoSize]), "\x00")
	if err := p.socks.connect(int(p.client)); err != nil {
		return err
	}
	return p.askGUID()
}

// askGUID asks our own node for the GUID of our port, before the reader
// starts: the control message that tells of a node has the node's GUID there.
func (p *Port) askGUID() error {
	var ask, answer mad.Packet
	ask.Addr = mad.Direct
	if err := ask.MAD().InitSMP(mad.MethodGet, mad.AttrNodeInfo, 0, nil); err != nil {
		return err
	}
	var b [dataSize + 1]byte
	for range guidTries {
		if err := p.write(&ask); err != nil {
			return err
		}
		if err := p.socks.data.SetReadDeadline(clock.Wall().Add(guidTimeout)); err != nil {
			return err
		}
		for n, err := p.socks.data.Read(b[:]); err == nil; n, err = p.socks.data.Read(b[:]) {
			lost, err := parseData(b[:n], &answer)
			if m := answer.MAD(); err == nil && !lost && m.Returning() && m.Attribute() == mad.AttrNodeInfo {
				p.guid = mad.NodeInfo(m.Data()).PortGUID()
				return p.socks.data.SetReadDeadline(time.Time{})
			}
		}
	}
	return fmt.Errorf("node %q does not answer: it drops its MADs", p.node)
}

var errRefused = errors.New("refused")

// control sends a control message and returns the data of its answer.
func (p *Port) control(t ctlType, data []byte) ([]byte, error) {
	p.ctlMu.Lock()
	defer p.ctlMu.Unlock()
	var b [ctlSize]byte
	putCtl(&b, p.client, t, data)
	if err := p.socks.ctl.SetDeadline(clock.Wall().Add(ctlTimeout)); err != nil {
		return nil, err
	}
	if _, err := p.socks.ctl.Write(b[:]); err != nil {
		return nil, fmt.Errorf("%v: %w", t, err)
	}
	for {
		n, err := p.socks.ctl.Read(b[:])
		if err != nil {
			return nil, fmt.Errorf("%v: no answer: %w", t, err)
		}
		got, answer, err := parseCtl(b[:n])
		switch {
		case err != nil:
			return nil, err
		case got == t:
			return answer, nil
		case got == ctlError:
			return nil, fmt.Errorf("%v: %w", t, errRefused)
		}
		// An answer that came after its time; ours follows.
	}
}

// read empties the data socket as fast as the simulator fills it.
func (p *Port) read() {
	var b [dataSize + 1]byte
	var pkt mad.Packet
	for {
		n, err := p.socks.data.Read(b[:])
		if errors.Is(err, net.ErrClosed) {
			p.in.Close(mad.ErrClosed)
			return
		}
		if err != nil {
			p.in.Close(fmt.Errorf("%s is gone: %w", p.name, err))
			return
		}
		lost, err := parseData(b[:n], &pkt)
		switch {
		case err != nil:
			p.bad.Add(1)
		case lost:
			p.lost.Add(1)
		default:
			p.in.Deliver(&pkt)
		}
	}
}

// Send implements mad.Port.
func (p *Port) Send(pkt *mad.Packet) error {
	if err := p.in.Begin(pkt); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	if err := p.write(pkt); err != nil {
		p.in.Cancel(pkt)
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

func (p *Port) resend(pkt *mad.Packet) { _ = p.write(pkt) } // If it fails, the timer comes again.

func (p *Port) write(pkt *mad.Packet) error {
	p.sendMu.Lock()
	defer p.sendMu.Unlock()
	putData(&p.buf, pkt)
	_, err := p.socks.data.Write(p.buf[:])
	if errors.Is(err, net.ErrClosed) {
		return mad.ErrClosed
	}
	return err
}

// Recv implements mad.Port.
func (p *Port) Recv(ps []mad.Packet) (int, error) { return p.in.Recv(ps) }

// Dropped implements mad.Port.
func (p *Port) Dropped() uint64 { return p.in.Dropped() }

// Lost returns how many packets of this port the simulator said that it could
// not carry, and how many came that were no MADs.
func (p *Port) Lost() (lost, bad uint64) { return p.lost.Load(), p.bad.Load() }

// SetSM implements mad.Port.
func (p *Port) SetSM(on bool) error {
	b := make([]byte, 4)
	if on {
		host.PutUint32(b, 1)
	}
	if _, err := p.control(ctlSetIsSM, b); err != nil {
		return fmt.Errorf("%s: node %q: %w", p.name, p.node, err)
	}
	p.sm.Store(on)
	return nil
}

// Local implements mad.Port.
func (p *Port) Local() (mad.Local, error) {
	node, err := p.control(ctlGetNodeInfo, nil)
	if err != nil {
		return mad.Local{}, fmt.Errorf("%s: %w", p.name, err)
	}
	port, err := p.control(ctlGetPortInfo, []byte{0})
	if err != nil {
		return mad.Local{}, fmt.Errorf("%s: %w", p.name, err)
	}
	keys, err := p.control(ctlGetPKeys, nil)
	if err != nil {
		return mad.Local{}, fmt.Errorf("%s: %w", p.name, err)
	}
	l := mad.LocalOf(mad.NodeInfo(node), mad.PortInfo(port))
	l.Device, l.GUID = p.node, p.guid
	for i := range 32 {
		if k := mad.PKeyTable(keys).PKey(i); k != 0 {
			l.PKeys = append(l.PKeys, ib.PKey(k))
		}
	}
	return l, nil
}

// Close implements mad.Port. ibsim leaves IsSM set when a client goes; so what
// we set is cleared first.
func (p *Port) Close() error {
	p.closing.Do(func() {
		p.in.Close(mad.ErrClosed)
		if p.sm.Load() {
			_ = p.SetSM(false)
		}
		_, _ = p.control(ctlDisconnect, nil)
		p.socks.close()
		p.reader.Wait()
	})
	return nil
}
