package verbs

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/netif"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/mem"
)

// limit is how a limit of DeviceAttr is reached, and exceeded.
type limit struct {
	// one makes one more of the objects that are counted, and returns how to destroy it.
	one func(l *lab) (func() error, error)
	// some makes something of the size n.
	some func(l *lab, n int) error
	// of: it follows from another, times a number.
	of    string
	times int
	// by is the test that reaches it, where that is another one.
	by func(*testing.T)
}

// lab is what limits are tried on.
type lab struct {
	*side
	peer *side
}

var least = Caps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}

var allLimits = map[string]limit{
	"MaxPD": {one: func(l *lab) (func() error, error) {
		p, err := l.dev.AllocPD()
		return func() error { return p.Dealloc() }, err
	}},
	"MaxCQ": {one: func(l *lab) (func() error, error) {
		c, err := l.dev.CreateCQ(1, nil)
		return func() error { return c.Destroy() }, err
	}},
	"MaxCompChannel": {one: func(l *lab) (func() error, error) {
		c, err := l.dev.CreateCompChannel()
		return func() error { return c.Destroy() }, err
	}},
	"MaxQP": {one: func(l *lab) (func() error, error) {
		q, err := l.pd.CreateQP(QPInitAttr{SendCQ: l.cq, RecvCQ: l.cq, Caps: least})
		return func() error { return q.Destroy() }, err
	}},
	"MaxMR": {one: func(l *lab) (func() error, error) {
		m, err := l.pd.RegMR(l.buf, 0)
		return func() error { return m.Dereg() }, err
	}},
	"MaxMW": {one: func(l *lab) (func() error, error) {
		w, err := l.pd.AllocMW(MWType2)
		return func() error { return w.Dealloc() }, err
	}},
	"MaxAH": {one: func(l *lab) (func() error, error) {
		a, err := l.pd.CreateAH(AV{DGID: l.peer.dev.GIDs()[0]})
		return func() error { return a.Destroy() }, err
	}},
	"MaxSRQ": {one: func(l *lab) (func() error, error) {
		s, err := l.pd.CreateSRQ(SRQAttr{MaxWR: 1, MaxSGE: 1})
		return func() error { return s.Destroy() }, err
	}},
	"MaxSRQWR": {some: func(l *lab, n int) error {
		s, err := l.pd.CreateSRQ(SRQAttr{MaxWR: n})
		if err != nil {
			return err
		}
		if k, err := s.PostRecv(make([]RecvWR, n+1)...); k != n || !errors.Is(err, ErrQueueFull) {
			return fmt.Errorf("%d receives of %d: %w", k, n, err)
		}
		return s.Destroy()
	}},
	"MaxSRQSge": {some: func(l *lab, n int) error {
		s, err := l.pd.CreateSRQ(SRQAttr{MaxWR: 1, MaxSGE: n})
		if err != nil {
			return err
		}
		if _, err := s.PostRecv(RecvWR{SGEs: elements(l.mr, n)}); err != nil {
			return err
		}
		return s.Destroy()
	}},
	"MaxCQE": {some: func(l *lab, n int) error {
		c, err := l.dev.CreateCQ(n, nil)
		if err == nil {
			err = errors.Join(c.Resize(1), c.Resize(n), c.Destroy())
		}
		return err
	}},
	"MaxQPWR": {some: func(l *lab, n int) error {
		return errors.Join(l.fill(Caps{MaxSendWR: n, MaxRecvWR: 1}), l.fill(Caps{MaxSendWR: 1, MaxRecvWR: n}))
	}},
	"MaxSGE": {some: func(l *lab, n int) error {
		return errors.Join(l.scatter(OpSend, n), l.scatter(OpRead, n))
	}},
	"MaxSGERd":  {of: "MaxSGE", times: 1},
	"MaxInline": {some: func(l *lab, n int) error { return l.inline(n) }},
	"MaxMRSize": {some: func(l *lab, n int) error { return l.register(n) }},
	"MaxFastRegPages": {some: func(l *lab, n int) error {
		m, err := l.pd.AllocMR(n)
		if err == nil {
			err = m.Dereg()
		}
		return err
	}},
	"MaxQPRdAtom": {some: func(l *lab, n int) error {
		return l.inSQD(QPAttr{MaxDestRdAtomic: uint8(n)}, AttrMaxDestRdAtomic)
	}},
	"MaxQPInitRdAtom": {some: func(l *lab, n int) error {
		return l.inSQD(QPAttr{MaxRdAtomic: uint8(n)}, AttrMaxRdAtomic)
	}},
	"MaxPKeys": {some: func(_ *lab, n int) error {
		var table ib.PKeyTable
		for k := range n {
			table = append(table, ib.PKey(0x8001+k))
		}
		link, other, err := rocev2.NewPair(rocev2.PairOptions{})
		if err != nil {
			return err
		}
		defer other.Close()
		p, err := rocev2.NewPort(rocev2.Config{Links: []rocev2.Link{link}, Net: &rocev2.FixedNet{}, PKeys: table})
		if err != nil {
			return errors.Join(ErrInvalid, err, link.Close())
		}
		return p.Close()
	}},
	"MaxMcastGrp":           {by: TestMcastLimits},
	"MaxMcastQPAttach":      {by: TestMcastLimits},
	"MaxTotalMcastQPAttach": {by: TestMcastLimits},

	"MaxResRdAtom": {of: "MaxQP", times: int(limits.MaxQPRdAtom)},
}

// inSQD changes what may be changed in SQD only.
func (l *lab) inSQD(a QPAttr, mask AttrMask) error {
	if err := l.qp.Modify(QPAttr{State: StateSQD}, AttrState); err != nil {
		return err
	}
	a.State = StateSQD
	err := l.qp.Modify(a, mask|AttrState)
	return errors.Join(err, l.qp.Modify(QPAttr{State: StateRTS}, AttrState))
}

// fill makes a QP and posts as many work requests as it may have, and one more of each kind, which it may not.
func (l *lab) fill(c Caps) error {
	q, err := l.pd.CreateQP(QPInitAttr{SendCQ: l.cq, RecvCQ: l.cq, Caps: c})
	if err != nil {
		return err
	}
	defer q.Destroy()
	if err := q.Connect(must(l.peer.qp.Endpoint(0)), ConnectOptions{}); err != nil {
		return err
	}
	if err := q.Modify(QPAttr{State: StateSQD}, AttrState); err != nil { // nothing is sent
		return err
	}
	sends, err := q.PostSend(make([]SendWR, c.MaxSendWR+1)...)
	recvs, err2 := q.PostRecv(make([]RecvWR, c.MaxRecvWR+1)...)
	if sends != c.MaxSendWR || recvs != c.MaxRecvWR || !errors.Is(err, ErrQueueFull) || !errors.Is(err2, ErrQueueFull) {
		return fmt.Errorf("%d sends and %d receives of %+v: %w, %w", sends, recvs, c, err, err2)
	}
	return nil
}

// scatter moves n bytes in elements of one each.
func (l *lab) scatter(op Opcode, n int) error {
	caps := Caps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: n, MaxRecvSGE: n}
	a, b := &side{dev: l.dev, pd: l.pd, cq: l.cq}, &side{dev: l.peer.dev, pd: l.peer.pd, cq: l.peer.cq}
	for _, s := range []*side{a, b} {
		var err error
		if s.qp, err = s.pd.CreateQP(QPInitAttr{SendCQ: s.cq, RecvCQ: s.cq, Caps: caps}); err != nil {
			return err
		}
		defer s.qp.Destroy()
	}
	o := ConnectOptions{Access: RemoteRead}
	if err := errors.Join(a.qp.Connect(must(b.qp.Endpoint(0)), o), b.qp.Connect(must(a.qp.Endpoint(0)), o)); err != nil {
		return err
	}
	must(b.qp.PostRecv(RecvWR{SGEs: elements(l.peer.mr, n)}))
	wr := SendWR{Opcode: op, Flags: Signaled, SGEs: elements(l.mr, n), RemoteAddr: l.peer.mr.IOVA(), RKey: l.peer.mr.RKey()}
	if _, err := a.qp.PostSend(wr); err != nil {
		return err
	}
	return completed(l.cq)
}

// elements makes a scatter-gather list.
func elements(m *MR, n int) (list []SGE) {
	for i := range n {
		list = append(list, m.SGE(2*i, 1))
	}
	return list
}

// completed waits for a completion.
func completed(c *CQ) error {
	wcs := make([]WC, 1)
	for c.Poll(wcs) == 0 {
	}
	return wcs[0].Err()
}

func (l *lab) inline(n int) error {
	q, err := l.pd.CreateQP(QPInitAttr{SendCQ: l.cq, RecvCQ: l.cq, Caps: Caps{MaxSendWR: 1, MaxRecvWR: 1, MaxRecvSGE: 1, MaxInline: n}})
	if err != nil {
		return err
	}
	defer q.Destroy()
	o := ConnectOptions{}
	if err := q.Connect(must(q.Endpoint(0)), o); err != nil { // with itself
		return err
	}
	must(q.PostRecv(RecvWR{SGEs: []SGE{l.mr.SGE(0, n)}}))
	if _, err := q.PostSend(SendWR{Opcode: OpSend, InlineData: make([]byte, n)}); err != nil {
		return err
	}
	return completed(l.cq)
}

// register registers n bytes of address space, the last of which a peer reads.
func (l *lab) register(n int) error {
	const page = 4096
	buf, err := unix.Mmap(-1, 0, n, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return err
	}
	defer unix.Munmap(buf)
	last := (n - 1) / page * page
	if err := unix.Mprotect(buf[last:], unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return err
	}
	buf[n-1] = 77
	m, err := l.pd.RegMR(buf, RemoteRead)
	if err != nil {
		return err
	}
	defer m.Dereg()
	wr := SendWR{Opcode: OpRead, Flags: Signaled, SGEs: []SGE{l.peer.mr.SGE(0, 1)}, RemoteAddr: m.IOVA() + uint64(n) - 1, RKey: m.RKey()}
	if _, err := l.peer.qp.PostSend(wr); err != nil {
		return err
	}
	if err := completed(l.peer.cq); err != nil {
		return err
	}
	if l.peer.buf[0] != 77 {
		return errors.New("another byte than the last was read")
	}
	return nil
}

// newLab makes a connected pair for limits.
func newLab(t *testing.T) *lab {
	a, b := newPair(t, 8192, Caps{}, ConnectOptions{})
	return &lab{a, b}
}

// have returns how many of the objects that a limit is about the lab has already.
func (l *lab) have(name string) int {
	d := l.dev
	return map[string]int{"MaxPD": len(d.pds), "MaxCQ": len(d.cqs), "MaxQP": len(d.qps), "MaxMR": len(d.mrs)}[name]
}

// Each limit that a device reports can be reached; one more is an error that names it.
func TestDeviceLimits(t *testing.T) {
	attr := reflect.ValueOf(limits)
	for i := range attr.NumField() {
		name := attr.Type().Field(i).Name
		if !strings.HasPrefix(name, "Max") {
			continue
		}
		x, ok := allLimits[name]
		if !ok {
			t.Errorf("%s: no test says how it is reached", name)
			continue
		}
		if x.by != nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			n := int(attr.Field(i).Convert(reflect.TypeFor[int]()).Int())
			switch l := newLab(t); {
			case x.one != nil:
				l.count(t, name, x, n)
			case x.some != nil:
				l.size(t, name, x, n)
			default:
				if want := x.times * int(attr.FieldByName(x.of).Int()); n != want {
					t.Errorf("%d, want %d", n, want)
				}
			}
		})
	}
}

// count makes as many objects as there may be.
func (l *lab) count(t *testing.T, name string, x limit, n int) {
	if testing.Short() && n > 1<<16 {
		t.Skip("so many take some time with the race detector")
	}
	var destroy func() error
	for i := l.have(name); i < n; i++ {
		var err error
		if destroy, err = x.one(l); err != nil {
			t.Fatalf("%d of %d: %v", i+1, n, err)
		}
	}
	for range 2 {
		_, err := x.one(l)
		wantErr(t, err, ErrLimit, name)
		if err := destroy(); err != nil {
			t.Fatal(err)
		}
		if destroy, err = x.one(l); err != nil {
			t.Errorf("after one is gone: %v", err)
		}
	}
}

// size makes things of the greatest size, and of none and too great a size.
func (l *lab) size(t *testing.T, name string, x limit, n int) {
	for _, k := range []int{n, n - 1, 1} {
		if err := x.some(l, k); err != nil {
			t.Errorf("%d of at most %d: %v", k, n, err)
		}
	}
	err := x.some(l, n+1)
	if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), name) {
		t.Errorf("%d of at most %d: %v, which should name %s", n+1, n, err, name)
	}
}

// What a port reports.
func TestPortLimits(t *testing.T) {
	l := newLab(t)
	p := l.dev.QueryPort()
	if p.GIDTableLen != netif.MaxGIDs {
		t.Errorf("a GID table of %d, want %d", p.GIDTableLen, netif.MaxGIDs)
	}
	for i := range p.GIDTableLen + 1 { // no index is out of an application's reach, nor one beyond
		_, err := l.dev.QueryGID(i)
		if is := i < len(l.dev.GIDs()); is != (err == nil) {
			t.Errorf("GID %d: %v", i, err)
		}
	}
	// A message of that length takes memory; the list alone says how long it is.
	huge := must(l.pd.AllocMR(mem.MaxPages))
	sge := SGE{MR: huge, Length: int(p.MaxMsgSize/2) + 1}
	_, err := l.qp.PostSend(SendWR{Opcode: OpWrite, SGEs: []SGE{sge, sge}})
	wantErr(t, err, ErrInvalid, "MaxMsgSize")
	sge.Length--
	if _, err := l.qp.PostSend(SendWR{Opcode: OpWrite, SGEs: []SGE{sge, sge}}); err != nil {
		t.Errorf("a message of %d bytes: %v", p.MaxMsgSize, err)
	}
}
