// Package porttest checks what every mad.Port promises, so that a subnet
// manager runs unchanged on each.
package porttest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// Setup says how to get ports of one fabric.
type Setup struct {
	// Open opens a port of a CA that nobody else is at.
	Open func(t *testing.T) mad.Port
	// Nowhere is a directed route from it that ends at nothing.
	Nowhere []byte
}

// Run checks all promises.
func Run(t *testing.T, s Setup) {
	for _, c := range []struct {
		name string
		do   func(t *testing.T, s Setup)
	}{
		{"local", local}, {"answers", answers}, {"timeouts", timeouts}, {"TIDs", tids}, {"batches", batches},
		{"concurrent", concurrent}, {"IsSM", isSM}, {"close", closes},
	} {
		t.Run(c.name, func(t *testing.T) { c.do(t, s) })
	}
}

func (s *Setup) open(t *testing.T) mad.Port {
	t.Helper()
	p := s.Open(t)
	t.Cleanup(func() { p.Close() })
	return p
}

func get(t *testing.T, tid uint64, attr mad.AttributeID, timeout time.Duration, path ...byte) *mad.Packet {
	t.Helper()
	p := &mad.Packet{Addr: mad.Direct, Timeout: timeout}
	if err := p.MAD().InitSMP(mad.MethodGet, attr, 0, path); err != nil {
		t.Fatal(err)
	}
	p.MAD().SetTID(tid)
	return p
}

func send(t *testing.T, p mad.Port, pkt *mad.Packet) {
	t.Helper()
	if err := p.Send(pkt); err != nil {
		t.Fatal(err)
	}
}

func recv(t *testing.T, p mad.Port) *mad.Packet {
	t.Helper()
	var ps [1]mad.Packet
	if n, err := p.Recv(ps[:]); err != nil || n != 1 {
		t.Fatalf("Recv: %d, %v", n, err)
	}
	return &ps[0]
}

// nothing checks that no packet comes for a while.
func nothing(t *testing.T, p mad.Port) {
	t.Helper()
	got := make(chan mad.Packet)
	go func() {
		var ps [1]mad.Packet
		if _, err := p.Recv(ps[:]); err == nil {
			got <- ps[0]
		}
		close(got)
	}()
	select {
	case q, ok := <-got:
		if ok {
			t.Errorf("one more came: %v, %v", &q, q.Err)
		}
	case <-time.After(100 * time.Millisecond):
	}
	p.Close()
	<-got
}

func local(t *testing.T, s Setup) {
	p := s.open(t)
	l, err := p.Local()
	if err != nil {
		t.Fatal(err)
	}
	send(t, p, get(t, 1, mad.AttrNodeInfo, time.Second))
	v := mad.NodeInfo(recv(t, p).MAD().Data())
	if l.GUID != v.PortGUID() || l.NodeGUID != v.NodeGUID() || l.Port != int(v.LocalPortNum()) || l.Device == "" {
		t.Errorf("Local says %+v, the node %v, %v, %d", l, v.PortGUID(), v.NodeGUID(), v.LocalPortNum())
	}
	if len(l.PKeys) != 1 || l.PKeys[0] != ib.PKeyDefault {
		t.Errorf("P_Keys are %v", l.PKeys)
	}
}

func answers(t *testing.T, s Setup) {
	p := s.open(t)
	ask := get(t, 0xaaaabbbb00000007, mad.AttrNodeInfo, time.Second, 1)
	before := *ask
	send(t, p, ask)
	if *ask != before {
		t.Error("Send changed the packet")
	}
	q := recv(t, p)
	m := q.MAD()
	if q.Err != nil || q.Key() != 7 || m.Method() != mad.MethodGetResp || m.Attribute() != mad.AttrNodeInfo || !m.Returning() {
		t.Errorf("the answer is %v, %v", q, q.Err)
	}
	if m.HopPointer() != 0 || m.HopCount() != 1 || len(m.ReturnPath()) != 1 || m.ReturnPath()[0] == 0 || q.Addr.LID != ib.LIDPermissive {
		t.Errorf("hop %d of %d, return path %v, from LID %d", m.HopPointer(), m.HopCount(), m.ReturnPath(), q.Addr.LID)
	}
	nothing(t, p)
}

// A request to nowhere comes back once, in its time.
func timeouts(t *testing.T, s Setup) {
	p := s.open(t)
	for i, c := range []struct {
		timeout time.Duration
		retries int
	}{{20 * time.Millisecond, 0}, {20 * time.Millisecond, 4}, {5 * time.Millisecond, 1}} {
		ask := get(t, uint64(100+i), mad.AttrPortInfo, c.timeout, s.Nowhere...)
		ask.Retries = c.retries
		begin := clock.Now()
		send(t, p, ask)
		q := recv(t, p)
		want := c.timeout * time.Duration(c.retries+1)
		if took := clock.Now().Sub(begin); took < want || took > want+10*time.Second {
			t.Errorf("%v and %d retries: came back after %v", c.timeout, c.retries, took)
		}
		if !errors.Is(q.Err, mad.ErrTimeout) || q.Key() != ask.Key() || q.MAD().Method() != mad.MethodGet || q.MAD().Attribute() != mad.AttrPortInfo {
			t.Errorf("came back as %v, %v", q, q.Err)
		}
	}
	// Not a request: nothing comes back.
	send(t, p, get(t, 200, mad.AttrPortInfo, 0, s.Nowhere...))
	nothing(t, p)
}

// A TID is refused while a request has it, and free again after.
func tids(t *testing.T, s Setup) {
	p := s.open(t)
	send(t, p, get(t, 9, mad.AttrNodeInfo, 30*time.Millisecond, s.Nowhere...))
	if err := p.Send(get(t, 9, mad.AttrNodeInfo, time.Second, s.Nowhere...)); err == nil {
		t.Error("a TID that is under way was taken")
	}
	if q := recv(t, p); !errors.Is(q.Err, mad.ErrTimeout) {
		t.Errorf("the first came back as %v", q.Err)
	}
	send(t, p, get(t, 9, mad.AttrNodeInfo, time.Second))
	if q := recv(t, p); q.Err != nil || q.Key() != 9 {
		t.Errorf("the TID is not free again: %v, %v", q, q.Err)
	}
	nothing(t, p)
}

// Many requests at once: each is answered once, whoever reads how much. Some
// may be lost on the way, and are sent again.
func batches(t *testing.T, s Setup) {
	const n = 3000
	p := s.open(t)
	go func() {
		for i := range uint64(n) {
			ask := get(t, i, mad.AttrNodeInfo, 200*time.Millisecond, 1)
			ask.Retries = 100
			if err := p.Send(ask); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	seen := map[uint32]bool{}
	ps := make([]mad.Packet, 64)
	for len(seen) < n {
		k, err := p.Recv(ps[:1+len(seen)%64])
		if err != nil {
			t.Fatal(err)
		}
		for i := range ps[:k] {
			if seen[ps[i].Key()] || ps[i].Err != nil {
				t.Fatalf("%v, %v", &ps[i], ps[i].Err)
			}
			seen[ps[i].Key()] = true
		}
	}
	nothing(t, p)
}

// Senders and readers at the same time do not disturb one another.
func concurrent(t *testing.T, s Setup) {
	const senders, each = 8, 200
	p := s.open(t)
	var wg sync.WaitGroup
	for i := range uint64(senders) {
		wg.Go(func() {
			for k := range uint64(each) {
				ask := get(t, i<<16|k, mad.AttrNodeInfo, 200*time.Millisecond, 1)
				ask.Retries = 100
				if err := p.Send(ask); err != nil {
					t.Error(err)
				}
			}
		})
	}
	got := make(chan uint32, senders*each)
	for range 2 {
		go func() {
			var ps [8]mad.Packet
			for {
				n, err := p.Recv(ps[:])
				if err != nil {
					return
				}
				for i := range ps[:n] {
					got <- ps[i].Key()
				}
			}
		}()
	}
	seen := map[uint32]bool{}
	for range senders * each {
		seen[<-got] = true
	}
	wg.Wait()
	if len(seen) != senders*each {
		t.Errorf("%d different answers, want %d", len(seen), senders*each)
	}
}

func isSM(t *testing.T, s Setup) {
	p := s.open(t)
	tid := uint64(0)
	is := func() bool {
		tid++
		send(t, p, get(t, tid, mad.AttrPortInfo, time.Second))
		return mad.PortInfo(recv(t, p).MAD().Data()).CapabilityMask()&mad.CapIsSM != 0
	}
	if is() {
		t.Error("IsSM is set from the start")
	}
	for _, on := range []bool{true, true, false, false, true} {
		if err := p.SetSM(on); err != nil || is() != on {
			t.Errorf("SetSM(%v): IsSM is %v, %v", on, !on, err)
		}
	}
	p.Close()
	q := s.open(t)
	send(t, q, get(t, 1, mad.AttrPortInfo, time.Second))
	if mad.PortInfo(recv(t, q).MAD().Data()).CapabilityMask()&mad.CapIsSM != 0 {
		t.Error("IsSM is still set after Close")
	}
}

func closes(t *testing.T, s Setup) {
	p := s.open(t)
	send(t, p, get(t, 1, mad.AttrNodeInfo, time.Hour, s.Nowhere...))
	done := make(chan error)
	go func() {
		var ps [1]mad.Packet
		_, err := p.Recv(ps[:])
		done <- err
	}()
	time.Sleep(5 * time.Millisecond)
	if err := errors.Join(p.Close(), p.Close()); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := <-done; !errors.Is(err, mad.ErrClosed) {
		t.Errorf("Recv ended with %v", err)
	}
	if err := p.Send(get(t, 2, mad.AttrNodeInfo, time.Second)); !errors.Is(err, mad.ErrClosed) {
		t.Errorf("Send after Close: %v", err)
	}
	if p.Dropped() != 0 {
		t.Errorf("%d dropped", p.Dropped())
	}
}
