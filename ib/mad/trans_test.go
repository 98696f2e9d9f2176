package mad

import (
	"testing"
	"time"

	"github.com/urxe/urxe/internal/clock"
)

func request(tid uint64, timeout time.Duration, retries int) *Packet {
	p := &Packet{Addr: Direct, Timeout: timeout, Retries: retries}
	_ = p.MAD().InitSMP(MethodGet, AttrNodeInfo, 0, nil)
	p.MAD().SetTID(tid)
	return p
}

func TestTransactionsRetryAndFail(t *testing.T) {
	var x Transactions
	if err := x.Add(request(1, 10, 2), 100); err != nil {
		t.Fatal(err)
	}
	if err := x.Add(request(1|7<<32, 10, 0), 100); err == nil {
		t.Error("a TID that is under way was taken")
	}
	var resent, failed []clock.Time
	for now := clock.Time(100); now < 200; now++ {
		x.Expire(now, func(*Packet) { resent = append(resent, now) }, func(p *Packet) {
			failed = append(failed, now)
			if p.Err != ErrTimeout || p.Key() != 1 {
				t.Errorf("failed with %v, %v", p, p.Err)
			}
		})
	}
	if len(resent) != 2 || resent[0] != 110 || resent[1] != 120 || len(failed) != 1 || failed[0] != 130 {
		t.Errorf("resent at %v, failed at %v", resent, failed)
	}
	if x.Len() != 0 || x.Deadline() != clock.Never {
		t.Error("it is still under way")
	}
}

func TestTransactionsAnswer(t *testing.T) {
	var x Transactions
	for tid := range uint64(100) {
		if err := x.Add(request(tid, time.Duration(1000-tid), 0), 1); err != nil {
			t.Fatal(err)
		}
	}
	p := request(50|9<<48, 0, 0)
	p.MAD().SetAttribute(AttrPortInfo)
	p.MAD().Respond(StatusOK)
	if x.Answer(p.MAD()) {
		t.Error("another attribute's answer was taken")
	}
	p.MAD().SetAttribute(AttrNodeInfo)
	if !x.Answer(p.MAD()) || x.Answer(p.MAD()) {
		t.Error("an answer counts once")
	}
	x.Cancel(99)
	if x.Len() != 98 || x.Deadline() != 1+1000-98 {
		t.Errorf("%d under way, the next ends at %d", x.Len(), x.Deadline())
	}
	last := clock.Time(0)
	x.Expire(2000, nil, func(p *Packet) {
		if d := clock.Time(1 + 1000 - p.MAD().TID()); d < last {
			t.Errorf("expired out of order")
		} else {
			last = d
		}
	})
}
