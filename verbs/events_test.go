package verbs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/qp"
)

// wantEvents reads the events that were raised so far.
func wantEvents(t *testing.T, d *Device, want ...Event) {
	t.Helper()
	last := Event{Type: lastEvent, Port: 255}
	d.events.push(last)
	var got []Event
	for e := range d.Events() {
		if e == last {
			break
		}
		got = append(got, e)
	}
	if !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

func TestPortEvents(t *testing.T) {
	b := newBench(t)
	down, up, gids := Event{Type: EventPortErr, Port: 1}, Event{Type: EventPortActive, Port: 1}, Event{Type: EventGIDChange, Port: 1}
	for _, c := range []struct {
		change func()
		want   []Event
	}{
		{func() {}, nil},
		{func() { b.engine.state = ib.PortDown }, []Event{down}},
		{func() { b.engine.gids[1] = ib.GID{1} }, []Event{gids}},
		{func() { b.engine.state, b.engine.gids[1] = ib.PortActive, ib.GID{} }, []Event{up, gids}},
		{func() { b.engine.downs++ }, []Event{down, up}}, // it is up again
		{func() { b.engine.state = ib.PortDown; b.engine.downs++ }, []Event{down}},
		{func() { b.engine.downs++ }, []Event{up, down}}, // it was up meanwhile
		{func() { b.engine.state = ib.PortActive; b.engine.downs++ }, []Event{down, up}},
		{func() { b.engine.dead = errors.New("removed") }, []Event{{Type: EventDeviceFatal}}},
	} {
		c.change()
		b.engine.changed()
		wantEvents(t, b.dev, c.want...)
	}
	if s := down.String(); s != "PORT_ERR on port 1" {
		t.Error(s)
	}
}

// What no one reads is kept, once each, and the last of an object's events stays the last.
func TestEventsWait(t *testing.T) {
	b := newBench(t)
	q, f := b.qp(DefaultCaps, StateRTS)
	for range 1000 {
		f.init.OnEvent(qp.EventSQDrained)
	}
	f.init.OnEvent(qp.EventQPReqErr)
	port := func(s ib.PortState) { b.engine.state = s; b.engine.changed() }
	for range 500 {
		port(ib.PortDown)
		port(ib.PortActive)
	}
	port(ib.PortDown)
	wantEvents(t, b.dev, Event{Type: EventSQDrained, QP: q}, Event{Type: EventQPReqErr, QP: q},
		Event{Type: EventPortActive, Port: 1}, Event{Type: EventPortErr, Port: 1})
	f.init.OnEvent(qp.EventSQDrained)
	wantEvents(t, b.dev, Event{Type: EventSQDrained, QP: q})
}

// A QP's own channel is bounded, and ends with it.
func TestEventsOfAQP(t *testing.T) {
	b := newBench(t)
	q, f := b.qp(DefaultCaps, StateRTS)
	for range qpEventRoom + 3 {
		f.init.OnEvent(qp.EventCommEst)
	}
	if n := q.EventsDropped(); n != 3 {
		t.Errorf("%d events dropped", n)
	}
	if e := <-q.Events(); e.QP != q || e.Type != EventCommEst || e.String() != "COMM_EST on QP 0x000001" {
		t.Errorf("%v", e)
	}
	q.Destroy()
	n := 0
	for range q.Events() { // ends: the channel is closed
		n++
	}
	if n != qpEventRoom-1 {
		t.Errorf("%d events were left", n)
	}
}

// What is destroyed takes its events with it, and no others.
func TestDestroyWithdrawsEvents(t *testing.T) {
	b := newBench(t)
	q2, f2 := b.qp(DefaultCaps, StateRTS)
	for range 1000 { // whatever the goroutine that offers them does
		q1, f1 := b.qp(DefaultCaps, StateRTS)
		cq := must(b.dev.CreateCQ(1, nil))
		for e := qp.EventQPFatal; e <= qp.EventSQDrained; e++ {
			f1.init.OnEvent(e)
		}
		cq.push(completion(1), completion(2))
		f2.init.OnEvent(qp.EventCommEst)
		if err := errors.Join(q1.Destroy(), cq.Destroy()); err != nil {
			t.Fatal(err)
		}
		wantEvents(t, b.dev, Event{Type: EventCommEst, QP: q2})
	}
}

// Many raise, read and destroy at once: each event comes, once and in order, unless its QP was destroyed before.
func TestEventsRacingWithDestroy(t *testing.T) {
	b := newBench(t)
	const qps, rounds = 8, 200
	seen := map[*QP]EventType{}
	read := make(chan error, 1)
	end := Event{Type: lastEvent, Port: 255}
	go func() {
		defer close(read)
		for e := <-b.dev.Events(); e != end; e = <-b.dev.Events() {
			if e.Type <= seen[e.QP] {
				read <- fmt.Errorf("%v after %v", e, seen[e.QP])
				return
			}
			seen[e.QP] = e.Type
		}
	}()
	var work sync.WaitGroup
	var kept [qps][]*QP
	for i := range qps {
		work.Go(func() {
			for range rounds {
				q := must(b.pd.CreateQP(QPInitAttr{SendCQ: b.cq, RecvCQ: b.cq}))
				for e := qp.EventQPFatal; e <= qp.EventSQDrained; e++ {
					q.event(e)
				}
				if rand.IntN(2) == 0 {
					kept[i] = append(kept[i], q)
				} else if err := q.Destroy(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	b.dev.events.push(end)
	for err := range read {
		t.Fatal(err)
	}
	for _, q := range slices.Concat(kept[:]...) {
		if seen[q] != EventSQDrained {
			t.Errorf("of %v, the last event was %v", q, seen[q])
		}
	}
}
