package procmem

import (
	"fmt"
	"testing"

	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// neighbour is a second connection whose packets share the burst, and the
// child's memory: it must not notice anything.
type neighbour struct {
	*conn
	c    *child
	data []byte
}

// What the neighbour uses: pages around those of the victim.
const (
	besideAt = 40 // pages
	besideN  = 3
)

func (l *lab) newNeighbour(c *child) *neighbour {
	l.t.Helper()
	n := &neighbour{conn: l.connect(c), c: c}
	n.data = n.here.fill(0, besideN*page)
	return n
}

// acts has the neighbour WRITE, SEND and READ.
func (n *neighbour) acts() {
	n.there.recv((besideAt+besideN)*page, page)
	n.here.post(qp.WRWrite, 0, len(n.data), n.there, besideAt*page)
	n.here.post(qp.WRSend, 0, page, n.there, 0)
	n.here.post(qp.WRRead, 10*page, len(n.data), n.there, besideAt*page)
	n.here.post(qp.WRFetchAdd, 20*page, 8, n.there, (besideAt+besideN+1)*page)
}

func (n *neighbour) check() {
	n.here.t.Helper()
	n.here.wantStatuses("the neighbour's requests", n.here.sends.got, repeat(4, qp.Success)...)
	n.there.wantStatuses("the neighbour's receives", n.there.recvs.got, qp.Success)
	n.c.wantBytes("the neighbour's WRITE", besideAt*page, n.data)
	n.c.wantBytes("the neighbour's SEND", (besideAt+besideN)*page, n.data[:page])
	if string(n.here.buf[10*page:10*page+len(n.data)]) != string(n.data) {
		n.here.t.Fatal("the neighbour's READ brought something else")
	}
	n.here.wantEvents()
	n.there.wantEvents()
	n.wantStates(qp.RTS)
}

// Pages are unmapped when a burst is on its way that was sent when all was well.
// before says whether a part of it has arrived already then; shift moves the
// messages, so that packets straddle the pages.
func TestWriteBurst(t *testing.T) {
	for _, before := range []bool{false, true} {
		for _, shift := range []int{0, 300} {
			t.Run(fmt.Sprintf("before=%v,shift=%d", before, shift), func(t *testing.T) { writeBurst(t, before, shift) })
		}
	}
}

func writeBurst(t *testing.T, before bool, shift int) {
	const whole, torn, gone = 3, 6, 6 // pages of the first message, of the second, and the page that goes
	c := startChild(t)
	l := newLab(t)
	k, n := l.connect(c), l.newNeighbour(c)
	k.there.recv(50*page, 100) // is flushed
	data := k.here.fill(0, (whole+torn)*page)
	if before {
		k.here.post(qp.WRWrite, 0, whole*page, k.there, shift)
		l.step(l.here)
		l.step(l.there)
	}
	if !before {
		k.here.post(qp.WRWrite, 0, whole*page, k.there, shift)
	}
	k.here.post(qp.WRWrite, whole*page, torn*page, k.there, whole*page+shift)
	k.here.post(qp.WRWrite, 0, page, k.there, 30*page)
	n.acts()
	l.step(l.here)
	c.unmap(gone, 1)
	l.settle()

	bad := (gone*page - shift) / mtu // the first packet that enters the page
	l.wantNAK(k, wire.NakRemoteAccess, psn(bad), 1)
	k.here.wantStatuses("requests", k.here.sends.got, qp.Success, qp.RemAccessErr, qp.WRFlushErr)
	k.there.wantStatuses("receives", k.there.recvs.got, qp.WRFlushErr)
	k.here.wantEvents()
	k.there.wantEvents(qp.EventQPAccessErr)
	k.wantStates(qp.Err)
	c.wantBytes("before the burst's place", 0, untouched(shift))
	c.wantBytes("packets before the fault", shift, data[:bad*mtu])
	c.wantBytes("pages behind it", (gone+1)*page, untouched(10*page))
	c.wantBytes("the place of the next message", 30*page, untouched(page))
	n.check()
}

// Messages of a packet each, to pages up and down, so that no two make one
// range.
func TestScatteredWrites(t *testing.T) {
	c := startChild(t)
	l := newLab(t)
	k, n := l.connect(c), l.newNeighbour(c)
	data := k.here.fill(0, page)
	place := func(i int) int { return i * 7 % 16 } // page of message i
	const messages, bad = 16, 9
	for i := range messages {
		k.here.post(qp.WRWrite, i, mtu-1, k.there, place(i)*page+i)
	}
	n.acts()
	l.step(l.here)
	c.unmap(place(bad), 1)
	l.settle()
	l.wantNAK(k, wire.NakRemoteAccess, psn(bad), bad)
	k.here.wantStatuses("requests", k.here.sends.got, append(repeat(bad, qp.Success, qp.RemAccessErr), repeat(messages-bad-1, qp.WRFlushErr)...)...)
	k.there.wantEvents(qp.EventQPAccessErr)
	k.wantStates(qp.Err)
	for i := range messages {
		switch {
		case i < bad:
			c.wantBytes("a message before", place(i)*page+i, data[i:i+mtu-1])
		case i > bad:
			c.wantBytes("a message behind", place(i)*page, untouched(page))
		}
	}
	n.check()
}

// SEND into a receive whose page is gone.
func TestSendBurst(t *testing.T) {
	c := startChild(t)
	l := newLab(t)
	k, n := l.connect(c), l.newNeighbour(c)
	data := k.here.fill(0, 3*page)
	for i := range 4 {
		k.there.recv(4*i*page, 3*page)
		k.here.post(qp.WRSend, 0, 3*page, k.there, 0)
	}
	n.acts()
	l.step(l.here)
	c.unmap(4+1, 1) // the second page of the second receive
	l.settle()
	perPage, perMessage := page/mtu, 3*page/mtu
	l.wantNAK(k, wire.NakRemoteOperation, psn(perMessage+perPage), 1)
	k.here.wantStatuses("sends", k.here.sends.got, qp.Success, qp.RemOpErr, qp.WRFlushErr, qp.WRFlushErr)
	k.there.wantStatuses("receives", k.there.recvs.got, qp.Success, qp.LocProtErr, qp.WRFlushErr, qp.WRFlushErr)
	k.there.wantEvents() // the completion says it
	k.wantStates(qp.Err)
	c.wantBytes("the first message", 0, data)
	c.wantBytes("the second up to the page", 4*page, data[:page])
	c.wantBytes("behind the page", 6*page, untouched(10*page))
	n.check()
}

// READ from a page that is gone: what lies before it comes, then the NAK in
// place of the response that can't.
func TestReadBurst(t *testing.T) {
	for _, shift := range []int{0, 300} {
		t.Run(fmt.Sprintf("shift=%d", shift), func(t *testing.T) {
			c := startChild(t)
			l := newLab(t)
			k, n := l.connect(c), l.newNeighbour(c)
			data := k.here.fill(40*page, 6*page)
			c.put(0, data)
			clear(data)
			k.here.post(qp.WRRead, 0, page, k.there, 0)
			k.here.post(qp.WRRead, page, 4*page, k.there, page-shift)
			k.here.post(qp.WRRead, 10*page, page, k.there, 0)
			n.acts()
			l.step(l.here)
			c.unmap(3, 1)
			l.settle()
			bad := (2*page + shift) / mtu // of the second READ's packets
			l.wantNAK(k, wire.NakRemoteAccess, psn(page/mtu+bad), 3)
			k.here.wantStatuses("READs", k.here.sends.got, qp.Success, qp.RemAccessErr, qp.WRFlushErr)
			k.there.wantEvents(qp.EventQPAccessErr)
			k.wantStates(qp.Err)
			for i, b := range k.here.buf[:20*page] {
				want := byte(0)
				switch {
				case i < page:
					want = byte((40*page + i) * 131 >> 3)
				case i < page+bad*mtu:
					want = byte((40*page + i - shift) * 131 >> 3)
				}
				if b != want {
					t.Fatalf("byte %d that was READ is %#x, want %#x", i, b, want)
				}
			}
			n.check()
		})
	}
}

// An atomic on a page that is gone.
func TestAtomicBurst(t *testing.T) {
	c := startChild(t)
	l := newLab(t)
	k, n := l.connect(c), l.newNeighbour(c)
	for i := range 4 {
		k.here.post(qp.WRFetchAdd, 8*i, 8, k.there, i*page)
	}
	n.acts()
	l.step(l.here)
	c.unmap(2, 1)
	l.settle()
	l.wantNAK(k, wire.NakRemoteAccess, psn(2), 2)
	k.here.wantStatuses("atomics", k.here.sends.got, qp.Success, qp.Success, qp.RemAccessErr, qp.WRFlushErr)
	k.there.wantEvents(qp.EventQPAccessErr)
	sum := untouched(8)
	sum[0]++ // a native number: little-endian where this runs, all bytes alike else
	if sum[7] != filler {
		t.Fatal("the filler carries")
	}
	c.wantBytes("the last word", 3*page, untouched(8))
	n.check()
}

// The requester's own memory is gone: nothing is sent of it.
func TestGatherBurst(t *testing.T) {
	for _, o := range []qp.WROpcode{qp.WRSend, qp.WRWrite} {
		t.Run(o.String(), func(t *testing.T) {
			c := startChild(t)
			l := newLab(t)
			k, n := l.connect(c), l.newNeighbour(c)
			data := k.here.fill(40*page, 4*page)
			c.put(0, data)
			clear(data)
			for i := range 4 {
				k.here.recv(i*page, page)
			}
			k.there.post(o, 0, page, k.here, 0)
			k.there.post(o, 3*page, 100, k.here, page)
			k.there.post(o, page, 100, k.here, 2*page)
			n.acts()
			c.unmap(3, 1)
			l.settle()
			k.there.wantStatuses("requests", k.there.sends.got, qp.Success, qp.LocProtErr, qp.WRFlushErr)
			k.there.wantEvents()
			if s := k.there.Query().State; s != qp.Err {
				t.Fatalf("state %v", s)
			}
			for i, b := range k.here.buf[:4*page] {
				want := byte(0)
				if i < page {
					want = byte((40*page + i) * 131 >> 3)
				}
				if b != want {
					t.Fatalf("byte %d here is %#x, want %#x", i, b, want)
				}
			}
			if o == qp.WRSend {
				k.here.wantStatuses("receives", k.here.recvs.got, qp.Success)
			}
			if a := k.here.Query(); a.RQPSN != backPSN+4 || a.State != qp.RTS {
				t.Fatalf("here expects PSN %v in %v: something was sent", a.RQPSN, a.State)
			}
			n.check()
		})
	}
}

// A READ whose place in the requester's memory is gone when the data comes.
func TestReadIntoNothing(t *testing.T) {
	c := startChild(t)
	l := newLab(t)
	k, n := l.connect(c), l.newNeighbour(c)
	data := k.here.fill(0, 4*page)
	k.there.post(qp.WRRead, 0, 4*page, k.here, 0)
	k.there.post(qp.WRRead, 10*page, page, k.here, 0)
	n.acts()
	l.step(l.there)
	c.unmap(2, 1)
	l.settle()
	k.there.wantStatuses("READs", k.there.sends.got, qp.LocProtErr, qp.WRFlushErr)
	k.there.wantEvents()
	c.wantBytes("what came before", 0, data[:2*page])
	c.wantBytes("what lies behind", 3*page, untouched(page))
	c.wantBytes("the other READ's place", 10*page, untouched(page))
	n.check()
}
