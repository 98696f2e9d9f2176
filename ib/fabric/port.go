package fabric

import (
	"fmt"
	"sync"

	"github.com/urxe/urxe/ib/internal/inbox"
	"github.com/urxe/urxe/ib/mad"
)

// queueLimit is how many unsolicited packets wait for Recv.
const queueLimit = 1 << 14

// Port is a mad.Port at a node of a fabric.
type Port struct {
	end     *Endpoint
	in      *inbox.Inbox
	closing sync.Once
}

var _ mad.Port = (*Port)(nil)

// Open attaches a mad.Port to a node: by ID or description, and the number of
// the port; 0 is a switch's own, and the first of others.
func (f *Fabric) Open(node string, num int) (*Port, error) {
	n := f.Node(node)
	if n == nil {
		return nil, fmt.Errorf("fabric: no node %q", node)
	}
	if num == 0 && !n.isSwitch() {
		num = 1
	}
	p := &Port{}
	p.in = inbox.New(queueLimit, func(pkt *mad.Packet) { _ = p.end.Inject(pkt) })
	end, err := f.Attach(n, num, p.in.Deliver)
	if err != nil {
		return nil, err
	}
	p.end = end
	return p, nil
}

// Send implements mad.Port.
func (p *Port) Send(pkt *mad.Packet) error {
	if err := p.in.Begin(pkt); err != nil {
		return err
	}
	if err := p.end.Inject(pkt); err != nil {
		p.in.Cancel(pkt)
		return err
	}
	return nil
}

// Recv implements mad.Port.
func (p *Port) Recv(ps []mad.Packet) (int, error) { return p.in.Recv(ps) }

// Local implements mad.Port.
func (p *Port) Local() (mad.Local, error) { return p.end.Local(), nil }

// SetSM implements mad.Port.
func (p *Port) SetSM(on bool) error { return p.end.SetSM(on) }

// Dropped implements mad.Port.
func (p *Port) Dropped() uint64 { return p.in.Dropped() }

// Close implements mad.Port.
func (p *Port) Close() error {
	p.closing.Do(func() {
		p.end.Detach()
		p.in.Close(mad.ErrClosed)
	})
	return nil
}
