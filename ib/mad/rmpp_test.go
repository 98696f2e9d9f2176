package mad

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/internal/seeded"
)

// head is a GetTableResp of subnet administration to LID lid.
func head(tid uint64) *Packet {
	p := &Packet{}
	p.Addr.LID, p.Addr.QPN = 9, 1
	p.MAD().InitSA(MethodGetTable, AttrNodeRecord, 0)
	p.MAD().SetTID(tid)
	p.MAD().SetRecordStride(NodeRecordSize)
	p.MAD().Respond(StatusOK)
	return p
}

// drain returns all that s sends now.
func drain(next func(*Packet) bool) []Packet {
	var ps []Packet
	for {
		var p Packet
		if !next(&p) {
			return ps
		}
		ps = append(ps, p)
	}
}

func ack(segment, window uint32) MAD {
	m := make(MAD, Size)
	m.InitSA(MethodGetTable, AttrNodeRecord, 0)
	m.setRMPP(RMPPAck, 0, RMPPNormal, segment, window)
	return m
}

func TestSenderSegments(t *testing.T) {
	data := make([]byte, 2*SADataSize+50)
	for i := range data {
		data[i] = byte(i)
	}
	s := NewSender(head(1), data, 1)
	ps := drain(s.Next)
	if len(ps) != 1 {
		t.Fatalf("%d segments before the first ACK, want 1", len(ps))
	}
	m := ps[0].MAD()
	// IBA 13.6.2.4: three segments with 20 bytes of class header each.
	if m.Segment() != 1 || m.Window() != 3*20+450 || !m.first() || m.last() || m.RMPPType() != RMPPData {
		t.Errorf("first segment: % x", []byte(m[24:36]))
	}
	s.Handle(ack(1, 10), 2)
	ps = drain(s.Next)
	if len(ps) != 2 || ps[0].MAD().Segment() != 2 || ps[1].MAD().Window() != 70 || !ps[1].MAD().last() {
		t.Fatalf("after the ACK: %v", ps)
	}
	if got := ps[1].MAD(); !bytes.Equal(got[56:106], data[400:]) || !bytes.Equal(got[106:], make([]byte, 150)) {
		t.Error("the last segment is not the rest of the data and zeros")
	}
	s.Handle(ack(3, 70), 3)
	if done, err := s.Done(); !done || err != nil {
		t.Errorf("after the last ACK: %v, %v", done, err)
	}
}

func TestSenderRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		m      MAD
		status RMPPStatus
		remote bool
	}{
		{"ACK of what was not sent", ack(2, 5), RMPPSegmentTooBig, false},
		{"window before the segment", ack(1, 0), RMPPWindowTooSmall, false},
		{"version", func() MAD { m := ack(1, 5); m[24] = 2; return m }(), RMPPBadVersion, false},
		{"type", func() MAD { m := ack(1, 5); m[25] = 9; return m }(), RMPPBadType, false},
		{"STOP", func() MAD { m := ack(1, 5); m[25], m[27] = 3, 1; return m }(), RMPPResourcesExhausted, true},
		{"ABORT", func() MAD { m := ack(1, 5); m[25], m[27] = 4, 121; return m }(), RMPPBadType, true},
	} {
		s := NewSender(head(1), make([]byte, 1000), 1)
		drain(s.Next)
		s.Handle(c.m, 2)
		done, err := s.Done()
		var e *RMPPError
		if !done || !errors.As(err, &e) || e.Status != c.status || e.Remote != c.remote {
			t.Errorf("%s: done %v, %v", c.name, done, err)
		}
		ps := drain(s.Next)
		if c.remote != (len(ps) == 0) || !c.remote && (ps[0].MAD().RMPPType() != RMPPAbort || ps[0].MAD().RMPPStatus() != c.status) {
			t.Errorf("%s: then sends %v", c.name, ps)
		}
	}
}

func TestSenderGivesUp(t *testing.T) {
	s := NewSender(head(1), make([]byte, 1000), 1)
	sent := 0
	for now := clock.Time(1); now < clock.Time(time.Hour); now = s.Deadline() {
		s.Expire(now)
		for _, p := range drain(s.Next) {
			if p.MAD().RMPPType() == RMPPData {
				sent++
			} else if p.MAD().RMPPStatus() != RMPPTooManyRetries {
				t.Errorf("gives up with %v", p.MAD().RMPPStatus())
			}
		}
	}
	if done, err := s.Done(); !done || err == nil || sent != rmppRetries+1 {
		t.Errorf("sent the first segment %d times, want %d; %v", sent, rmppRetries+1, err)
	}
}

func TestReceiverRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		bad    func(m MAD)
		status RMPPStatus
	}{
		{"segment 0", func(m MAD) { m.setRMPP(RMPPData, 0, 0, 0, 220) }, RMPPBadFirst},
		{"segment 2 is First", func(m MAD) { m.setRMPP(RMPPData, rmppFirst, 0, 2, 220) }, RMPPBadFirst},
		{"segment 1 is not First", func(m MAD) { m.setRMPP(RMPPData, 0, 0, 1, 220) }, RMPPBadFirst},
		{"beyond the window", func(m MAD) { m.setRMPP(RMPPData, 0, 0, 2, 220) }, RMPPSegmentTooBig},
		{"last too long", func(m MAD) { m.setRMPP(RMPPData, rmppFirst|rmppLast, 0, 1, 221) }, RMPPBadLast},
		{"last too short", func(m MAD) { m.setRMPP(RMPPData, rmppFirst|rmppLast, 0, 1, 19) }, RMPPBadLast},
		{"type", func(m MAD) { m.setRMPP(7, 0, 0, 1, 0) }, RMPPBadType},
		{"version", func(m MAD) { m.setRMPP(RMPPData, rmppFirst, 0, 1, 0); m[24] = 0 }, RMPPBadVersion},
	} {
		p := head(1)
		c.bad(p.MAD())
		r := NewReceiver(p, 1)
		r.Handle(p.MAD(), 1)
		done, err := r.Done()
		var e *RMPPError
		ps := drain(r.Next)
		if !done || !errors.As(err, &e) || e.Status != c.status || len(ps) != 1 || ps[0].MAD().RMPPType() != RMPPAbort {
			t.Errorf("%s: done %v, %v, sends %d", c.name, done, err, len(ps))
		}
	}
}

func TestSendLimits(t *testing.T) {
	var r RMPP
	p := head(1)
	if err := r.Send(p, nil, 1); err != nil {
		t.Fatal(err)
	}
	if err := r.Send(p, nil, 1); err == nil {
		t.Error("a TID that is under way was taken")
	}
	p.MAD().Init(ClassPerf, MethodGetResp, AttrPortCounters, 0)
	if err := r.Send(p, nil, 1); err == nil {
		t.Error("a class without RMPP was taken")
	}
}

// lossy carries packets between two RMPP endpoints and does to them what a
// fabric may.
type lossy struct {
	r       *rand.Rand
	loss    float64
	now     clock.Time
	flights []flight
}

type flight struct {
	at clock.Time
	to int
	p  Packet
}

func (l *lossy) carry(to int, p Packet) {
	if l.r.Float64() < l.loss {
		return
	}
	copies := 1
	if l.r.Float64() < l.loss/2 {
		copies = 2
	}
	for range copies {
		delay := time.Duration(1+l.r.IntN(1000)) * time.Microsecond
		if l.r.IntN(50) == 0 {
			delay += time.Duration(l.r.IntN(1000)) * time.Millisecond // Long after its retransmission.
		}
		l.flights = append(l.flights, flight{l.now.Add(delay), to, p})
	}
}

// earliest takes the next arrival, if it comes before deadline.
func (l *lossy) earliest(deadline clock.Time) (flight, bool) {
	best := -1
	for i := range l.flights {
		if best < 0 || l.flights[i].at < l.flights[best].at {
			best = i
		}
	}
	if best < 0 || l.flights[best].at > deadline {
		return flight{}, false
	}
	f := l.flights[best]
	l.flights[best] = l.flights[len(l.flights)-1]
	l.flights = l.flights[:len(l.flights)-1]
	return f, true
}

// Messages of both directions arrive whole and once, or are reported to have
// failed, whatever gets lost, comes twice or late; with nothing lost, none fails.
func TestRMPPSimulation(t *testing.T) {
	base := cmp.Or(seeded.Given(), 1)
	seeds := uint64(300)
	if testing.Short() {
		seeds = 60
	}
	for i := range seeds {
		if err := simulate(base+i, float64(i%4)*0.1); err != nil {
			t.Fatalf("simulation -seed=%d: %v", base+i, err)
		}
	}
}

// A sender that no packet of got through, so that its receiver never knew of
// it, says that it failed.
func TestRMPPNobodyHears(t *testing.T) {
	if err := simulate(3735, 0.3); err != nil {
		t.Error(err)
	}
	var r RMPP
	if err := r.Send(head(7), make([]byte, 1000), 1); err != nil {
		t.Fatal(err)
	}
	for d := r.Deadline(); d != clock.Never; d = r.Deadline() {
		drain(r.Next)
		r.Expire(d)
	}
	m, ok := r.Message()
	var e *RMPPError
	if !ok || !errors.As(m.Err, &e) || e.Status != RMPPTooManyRetries || m.MAD().TID() != 7 || m.Addr.LID != 9 {
		t.Errorf("got %v, %v", m, ok)
	}
	if _, more := r.Message(); more {
		t.Error("the failure is told twice")
	}
}

func simulate(seed uint64, loss float64) error {
	r := rand.New(rand.NewPCG(seed, 3))
	l := &lossy{r: r, loss: loss, now: 1}
	ends := [2]RMPP{}
	want := map[uint64][]byte{}
	for tid := uint64(1); tid <= 6; tid++ {
		data := noise(r, r.IntN(1+r.IntN(40000)))
		want[tid] = data
		if err := ends[tid%2].Send(head(tid), data, l.now); err != nil {
			return err
		}
	}
	got, failed := map[uint64]bool{}, map[uint64]bool{}
	for range 200000 {
		for i := range ends {
			for _, p := range drain(ends[i].Next) {
				l.carry(1-i, p)
			}
			for m, ok := ends[i].Message(); ok; m, ok = ends[i].Message() {
				tid := m.MAD().TID()
				switch {
				case m.Err != nil:
					failed[tid] = true
					if loss == 0 {
						return fmt.Errorf("TID %d: %w", tid, m.Err)
					}
				case got[tid] || !bytes.Equal(m.Bytes, want[tid]) || m.MAD().Method() != MethodGetTableResp:
					return fmt.Errorf("TID %d: came twice or %d bytes differ from %d", tid, len(m.Bytes), len(want[tid]))
				default:
					got[tid] = true
				}
			}
		}
		deadline := min(ends[0].Deadline(), ends[1].Deadline())
		f, ok := l.earliest(deadline)
		switch {
		case ok:
			l.now = max(l.now, f.at)
			ends[f.to].Handle(&f.p, l.now)
		case deadline == clock.Never:
			for tid := range want {
				if !got[tid] && !failed[tid] {
					return fmt.Errorf("TID %d neither came nor failed", tid)
				}
			}
			return nil
		default:
			l.now = deadline
			ends[0].Expire(l.now)
			ends[1].Expire(l.now)
		}
	}
	return errors.New("it never ends")
}

// A request that is long is answered by a message that is long, with the same
// TID, even when the request's last ACK is lost.
func TestRMPPBothWays(t *testing.T) {
	for _, lose := range []bool{false, true} {
		var client, server RMPP
		q := &Packet{Addr: Addr{LID: 9, QPN: 1}}
		q.MAD().InitSA(MethodGetMulti, AttrMultiPathRecord, 0)
		q.MAD().SetTID(5)
		ask, answer := pattern(3000), pattern(30000)
		if err := client.Send(q, ask, 1); err != nil {
			t.Fatal(err)
		}
		var got *Message
		for range 1000 {
			for _, p := range drain(client.Next) {
				server.Handle(&p, 1)
			}
			if m, ok := server.Message(); ok {
				if m.Err != nil || !bytes.Equal(m.Bytes, ask) {
					t.Fatalf("the request came as %d bytes, %v", len(m.Bytes), m.Err)
				}
				if lose {
					drain(server.Next)
				}
				m.MAD().Respond(StatusOK)
				if err := server.Send(&m.Packet, answer, 1); err != nil {
					t.Fatal(err)
				}
			}
			for _, p := range drain(server.Next) {
				client.Handle(&p, 1)
			}
			if m, ok := client.Message(); ok {
				got = &m
			}
		}
		if got == nil || got.Err != nil || !bytes.Equal(got.Bytes, answer) || got.MAD().Method() != MethodGetMultiResp {
			t.Errorf("last ACK lost %v: the answer is %v", lose, got)
		}
		if client.Failed+server.Failed != 0 {
			t.Errorf("%d and %d transfers failed", client.Failed, server.Failed)
		}
	}
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i/251)
	}
	return b
}

// Whatever comes, a transfer neither crashes nor hangs.
func FuzzRMPP(f *testing.F) {
	f.Add([]byte{1, 2, 0xf9, 0, 0, 0, 0, 1, 0, 0, 0, 9}, uint8(1))
	f.Add([]byte{1, 1, 0xff, 0, 0, 0, 0, 1, 0, 0, 0, 99}, uint8(0))
	f.Fuzz(func(t *testing.T, headers []byte, first uint8) {
		var r RMPP
		if err := r.Send(head(uint64(first)), make([]byte, 5000), 1); err != nil {
			t.Fatal(err)
		}
		now := clock.Time(1)
		for len(headers) >= 12 {
			p := head(uint64(headers[0] % 4))
			if headers[1]&1 != 0 {
				p.MAD().SetMethod(MethodGetTable)
			}
			copy(p.Data[24:], headers[:12])
			p.Data[26] |= rmppActive
			headers = headers[12:]
			r.Handle(p, now)
			drain(r.Next)
			if d := r.Deadline(); d != clock.Never && headers == nil {
				now = d
				r.Expire(now)
			}
		}
		for range 1000 {
			if r.Deadline() == clock.Never {
				return
			}
			r.Expire(r.Deadline())
			drain(r.Next)
		}
		t.Error("it never ends")
	})
}
