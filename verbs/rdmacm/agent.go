package rdmacm

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/cm"
	"github.com/urxe/urxe/verbs"
)

// How many datagrams QP1 may have in flight, and address handles are kept.
const (
	recvSlots = 512
	sendSlots = 256
	slotLen   = verbs.GRHLen + mad.Size
	maxAHs    = 256
)

// agent runs the communication manager of a device over its QP1, on a goroutine of its own. It is there while something
// uses it, or a connection ends.
type agent struct {
	dev     *verbs.Device
	pd      *verbs.PD
	channel *verbs.CompChannel
	cq      *verbs.CQ
	mr      *verbs.MR // recvSlots, then sendSlots
	qp      *verbs.QP
	wake    chan struct{} // a call may have left something to send, or a nearer deadline
	stopped chan struct{} // closed when the agent has ended
	conns   sync.Map      // *Conn that have not ended; requests are none before Accept

	mu     sync.Mutex
	m      *cm.Manager
	users  int
	free   []int // send slots
	ahs    map[destination]*verbs.AH
	lot    lot
	closed error // why no calls are taken any more
}

var agents struct {
	sync.Mutex
	of map[*verbs.Device]*agent
}

// use returns the device's agent, and keeps it until leave.
func use(d *verbs.Device) (*agent, error) {
	agents.Lock()
	defer agents.Unlock()
	for a := agents.of[d]; a != nil; a = agents.of[d] {
		if a.join() {
			return a, nil
		}
		agents.Unlock()
		<-a.stopped // QP1 is its until then
		agents.Lock()
	}
	a, err := newAgent(d)
	if err != nil {
		return nil, err
	}
	if agents.of == nil {
		agents.of = map[*verbs.Device]*agent{}
	}
	agents.of[d] = a
	go a.run()
	return a, nil
}

// join begins a use, unless the agent is about to end.
func (a *agent) join() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed != nil {
		return false
	}
	a.users++
	return true
}

// share begins another use of an agent that is in use.
func (a *agent) share() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.users++
}

// leave ends a use.
func (a *agent) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.users--
	a.signal()
}

func newAgent(d *verbs.Device) (*agent, error) {
	attr := d.Query()
	a := &agent{dev: d, users: 1, wake: make(chan struct{}, 1), stopped: make(chan struct{}), ahs: map[destination]*verbs.AH{}}
	a.m = cm.New(cm.Config{
		GUID: attr.NodeGUID, AckDelay: uint8(attr.LocalCAAckDelay),
		Owns: func(g ib.GID) bool { return slices.Contains(d.GIDs(), g) },
		MTU:  func() ib.MTU { return d.QueryPort().ActiveMTU }, PKeys: d.QueryPort().PKeyTable,
	})
	if err := a.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("rdmacm: %s: QP1: %w", d.Name(), err), a.close())
	}
	return a, nil
}

// open makes QP1, and has it receive.
func (a *agent) open() (err error) {
	if a.pd, err = a.dev.AllocPD(); err != nil {
		return err
	}
	if a.mr, err = a.pd.RegMR(make([]byte, (recvSlots+sendSlots)*slotLen), verbs.LocalWrite); err != nil {
		return err
	}
	if a.channel, err = a.dev.CreateCompChannel(); err != nil {
		return err
	}
	if a.cq, err = a.dev.CreateCQ(recvSlots+sendSlots, a.channel); err != nil {
		return err
	}
	a.qp, err = a.pd.CreateQP(verbs.QPInitAttr{Type: verbs.GSI, SendCQ: a.cq, RecvCQ: a.cq,
		Caps: verbs.Caps{MaxSendWR: sendSlots, MaxRecvWR: recvSlots, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return err
	}
	if err = a.qp.ToInit(verbs.ConnectOptions{}); err != nil {
		return err
	}
	for i := range recvSlots {
		if err = a.post(i); err != nil {
			return err
		}
	}
	for i := range sendSlots {
		a.free = append(a.free, recvSlots+i)
	}
	return a.qp.Start(verbs.ConnectOptions{})
}

// close frees what open made. What a closed device has freed already is no error.
func (a *agent) close() error {
	var errs []error
	for _, h := range a.ahs {
		errs = append(errs, h.Destroy())
	}
	if a.qp != nil {
		errs = append(errs, a.qp.Destroy())
	}
	if a.cq != nil {
		errs = append(errs, a.cq.Destroy())
	}
	if a.channel != nil {
		errs = append(errs, a.channel.Destroy())
	}
	if a.mr != nil {
		errs = append(errs, a.mr.Dereg())
	}
	if a.pd != nil {
		errs = append(errs, a.pd.Dealloc())
	}
	errs = slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, verbs.ErrClosed) })
	return errors.Join(errs...)
}

func (a *agent) post(slot int) error {
	_, err := a.qp.PostRecv(verbs.RecvWR{ID: uint64(slot), SGEs: []verbs.SGE{a.mr.SGE(slot*slotLen, slotLen)}})
	return err
}

// run is the agent's goroutine.
func (a *agent) run() {
	defer close(a.stopped)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		err := a.work()
		if err != nil || a.idle() {
			a.end(err)
			return
		}
		timer.Reset(a.untilDeadline())
		select {
		case <-a.channel.Ready():
		case <-a.wake:
		case <-timer.C:
		}
	}
}

// work does all that there is to do now.
func (a *agent) work() error {
	if _, err := a.channel.TryWait(); err != nil {
		return err
	}
	if err := a.cq.ReqNotify(false); err != nil {
		return err
	}
	var wcs [64]verbs.WC
	for n := len(wcs); n == len(wcs); {
		n = a.cq.Poll(wcs[:])
		a.mu.Lock()
		for i := range wcs[:n] {
			if err := a.complete(&wcs[i]); err != nil {
				a.mu.Unlock()
				return err
			}
		}
		a.m.Expire(clock.Now())
		a.flush()
		a.mu.Unlock()
	}
	return a.cq.Err()
}

// complete takes a completion: a datagram, or that one was sent. Under mu.
func (a *agent) complete(wc *verbs.WC) error {
	slot := int(wc.ID)
	if slot >= recvSlots {
		a.free = append(a.free, slot)
		if wc.Status != verbs.Success { // a lost datagram is sent again; QP1 goes on
			return a.recover()
		}
		return nil
	}
	switch wc.Status {
	case verbs.Success:
		a.receive(wc, a.mr.Bytes()[slot*slotLen:][:slotLen])
	case verbs.WRFlushErr: // QP1 is in ERR: another receive would be flushed, too
		return wc.Err()
	}
	return a.post(slot)
}

// recover takes QP1 out of SQE, where a send that failed has left it.
func (a *agent) recover() error {
	if attr, err := a.qp.Query(); err != nil || attr.State != verbs.StateSQE {
		return err
	}
	return a.qp.Modify(verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState)
}

// receive passes a datagram on, of one that the manager can know where it comes from.
func (a *agent) receive(wc *verbs.WC, buf []byte) {
	av, err := a.dev.AVFromWC(wc, buf[:verbs.GRHLen])
	if err != nil || wc.ByteLen != slotLen || wc.SrcQP != ib.QPNGeneralServices {
		return
	}
	local, err := a.dev.QueryGID(int(av.SGIDIndex))
	if err != nil {
		return
	}
	p := cm.Path{Local: local, Remote: av.DGID, SGIDIndex: av.SGIDIndex, TrafficClass: av.TClass, FlowLabel: av.FlowLabel, PKeyIndex: wc.PKeyIndex}
	a.m.Receive(&cm.Datagram{Path: p, MAD: [mad.Size]byte(buf[verbs.GRHLen:])}, clock.Now())
}

// flush sends what there is to send, as far as slots are free, and passes events on: after the answers, as who hears of
// the last one may end the program. Under mu.
func (a *agent) flush() {
	now := clock.Now()
	a.sendParked(now)
	a.sendAll(now)
	a.events()
	a.sendAll(now) // what listeners refused
}

func (a *agent) sendAll(now clock.Time) {
	var d cm.Datagram
	for len(a.free) > 0 && a.m.Next(&d) {
		a.send(&d, now)
	}
}

// send sends a datagram, or parks it when its next hop isn't known. One that can't be sent is lost, as others are on their
// way.
func (a *agent) send(d *cm.Datagram, now clock.Time) {
	to := destinationOf(&d.Path)
	may := a.lot.mayPark(to, d)
	if a.lot.of[to] == nil { // else others wait
		h, err := a.handle(to, may)
		if h != nil {
			a.sendTo(h, d)
		}
		may = may && h == nil && err == nil
	}
	if may {
		a.lot.park(to, d, now)
	}
}

// sendParked sends what has waited for next hops that are known now, and loses what has waited too long.
func (a *agent) sendParked(now clock.Time) {
	if now < a.lot.look {
		return
	}
	a.lot.look = now.Add(parkLookAgain)
	a.lot.sweep(func(p *place) bool {
		h, err := a.handle(p.to, true)
		if h == nil {
			return err != nil || now.Sub(p.since) >= parkPatience
		}
		for len(p.datagrams) > 0 && len(a.free) > 0 {
			a.sendTo(h, &p.datagrams[0])
			p.datagrams = p.datagrams[1:]
		}
		return len(p.datagrams) == 0
	})
}

// sendTo posts a datagram. There is a free slot.
func (a *agent) sendTo(h *verbs.AH, d *cm.Datagram) {
	slot := a.free[len(a.free)-1]
	copy(a.mr.Bytes()[slot*slotLen:], d.MAD[:])
	if _, err := a.qp.PostSend(verbs.SendWR{ID: uint64(slot), Opcode: verbs.OpSend, Flags: verbs.Signaled, SGEs: []verbs.SGE{a.mr.SGE(slot*slotLen, mad.Size)},
		AH: h, RemoteQPN: ib.QPNGeneralServices, RemoteQKey: ib.QKeyGSI, PKeyIndex: d.PKeyIndex}); err == nil {
		a.free = a.free[:len(a.free)-1]
	}
}

// handle returns the address handle of a destination, nil while its next hop isn't known, which may be asked for or not.
func (a *agent) handle(to destination, ask bool) (*verbs.AH, error) {
	if h := a.ahs[to]; h != nil {
		return h, nil
	}
	if known, err := a.dev.NextHopKnown(to.av(), ask); err != nil || !known {
		return nil, err
	}
	h, err := a.pd.CreateAH(to.av())
	if err != nil {
		return nil, err
	}
	if len(a.ahs) >= maxAHs {
		for k, old := range a.ahs { // any one
			old.Destroy()
			delete(a.ahs, k)
			break
		}
	}
	a.ahs[to] = h
	return h, nil
}

// events passes the manager's events on. Under mu.
func (a *agent) events() {
	for e, ok := a.m.Event(); ok; e, ok = a.m.Event() {
		switch u := e.Conn.User.(type) {
		case *Conn:
			u.take(e)
		case nil:
			e.Listener.User.(*Listener).take(e)
		}
	}
}

// do runs a call of the manager, f, and sends what comes of it, before the caller can close the device.
func (a *agent) do(f func(m *cm.Manager, now clock.Time) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed != nil {
		return a.closed
	}
	defer a.signal()
	defer a.flush()
	return verbsError(f(a.m, clock.Now()))
}

func (a *agent) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *agent) untilDeadline() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.m.Deadline()
	if len(a.lot.of) > 0 {
		at = min(at, a.lot.look)
	}
	if at == clock.Never {
		return time.Hour
	}
	return max(0, at.Sub(clock.Now()))
}

// idle reports whether nobody needs the agent any more; nobody can begin to then.
func (a *agent) idle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.users > 0 || a.m.Conns() > 0 || len(a.free) < sendSlots || len(a.lot.of) > 0 {
		return false
	}
	a.closed = fmt.Errorf("rdmacm: %s: %w", a.dev.Name(), verbs.ErrClosed)
	return true
}

// end frees everything, for a reason or none.
func (a *agent) end(why error) {
	a.mu.Lock()
	if a.closed == nil {
		a.closed = fmt.Errorf("rdmacm: %s: QP1: %w", a.dev.Name(), why)
	}
	a.mu.Unlock()
	a.conns.Range(func(c, _ any) bool { c.(*Conn).end(a.closed); return true })
	a.close()
	agents.Lock()
	defer agents.Unlock()
	if agents.of[a.dev] == a {
		delete(agents.of, a.dev)
	}
}
