package procmem

import (
	"encoding/hex"
	"strconv"
	"testing"

	"github.com/urxe/urxe/internal/seeded"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// The process is killed when part of a burst has landed: the rest is refused,
// and another process's connections, in the same burst, go on.
func TestKilledInMidBurst(t *testing.T) {
	c, other := startChild(t), startChild(t)
	l := newLab(t)
	k, n := l.connect(c), l.newNeighbour(other)
	reader, sender := l.connect(c), l.connect(c)
	data := k.here.fill(0, 4*page)
	k.here.post(qp.WRWrite, 0, 4*page, k.there, 0)
	sender.there.recv(20*page, page)
	sender.there.recv(21*page, page)
	sender.here.post(qp.WRSend, 0, page, sender.there, 0)
	l.settle()
	c.wantBytes("the first message", 0, data)

	l.answers = nil
	k.here.post(qp.WRWrite, 0, page, k.there, 4*page)
	k.here.post(qp.WRWrite, 0, page, k.there, 5*page)
	reader.here.post(qp.WRRead, 0, page, reader.there, 0)
	sender.here.post(qp.WRSend, 0, page, sender.there, 0)
	n.acts()
	l.step(l.here)
	c.Kill()
	l.settle()
	perPage := page / mtu
	l.wantNAK(k, wire.NakRemoteAccess, psn(4*perPage), 1)
	l.wantNAK(reader, wire.NakRemoteAccess, psn(0), 1)
	l.wantNAK(sender, wire.NakRemoteOperation, psn(perPage), 1)
	k.here.wantStatuses("WRITEs", k.here.sends.got, qp.Success, qp.RemAccessErr, qp.WRFlushErr)
	reader.here.wantStatuses("READ", reader.here.sends.got, qp.RemAccessErr)
	sender.here.wantStatuses("SENDs", sender.here.sends.got, qp.Success, qp.RemOpErr)
	sender.there.wantStatuses("receives", sender.there.recvs.got, qp.Success, qp.LocProtErr)
	if !c.proc.Dead() {
		t.Error("the process isn't known to be dead")
	}
	if _, err := l.there.Keys().Register(k.there.mr.PD, c.proc, c.addr, 0, 1, 0); err == nil {
		t.Error("memory of a dead process was registered")
	}
	n.check()
}

// The process of a requester is killed: nothing more is sent for it.
func TestKilledRequester(t *testing.T) {
	c, other := startChild(t), startChild(t)
	l := newLab(t)
	k, n := l.connect(c), l.newNeighbour(other)
	k.there.post(qp.WRWrite, 0, page, k.here, 0)
	k.there.post(qp.WRRead, 0, page, k.here, page)
	n.acts()
	c.Kill()
	l.settle()
	k.there.wantStatuses("requests", k.there.sends.got, qp.LocProtErr, qp.WRFlushErr)
	if a := k.here.Query(); a.RQPSN != backPSN {
		t.Errorf("here expects PSN %v: something was sent", a.RQPSN)
	}
	n.check()
}

// Pages go at any time, while a long message pours in: what the NAK
// acknowledges has landed, and nothing behind the packet that it names.
func TestUnmappedAtAnyTime(t *testing.T) {
	rnd := seeded.Rand(t)
	torn := 0
	for range 30 {
		c := startChild(t)
		l := newLab(t)
		k := l.connect(c)
		shift := rnd.IntN(page)
		size := 32*page - shift
		data := k.here.fill(0, size)
		k.here.post(qp.WRWrite, 0, size, k.there, shift)
		gone := 1 + rnd.IntN(30)
		delay := rnd.IntN(20)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range delay {
				c.In.Write([]byte("get 0 1\n"))
			}
			c.In.Write([]byte("unmap " + strconv.Itoa(gone*page) + " " + strconv.Itoa(page) + "\n"))
		}()
		l.settle()
		<-done
		for range delay + 1 {
			c.Line()
		}
		l.checkTorn(k, c, data, shift, gone)
		if k.here.Query().State == qp.Err {
			torn++
		}
		c.Kill()
	}
	t.Logf("%d of 30 messages were torn", torn)
}

// checkTorn checks how a message ended whose page went away: not at all, if it
// had landed; else at the first packet that enters the page, or one behind it,
// as those before may have been quicker.
func (l *lab) checkTorn(k *conn, c *child, data []byte, shift, gone int) {
	l.t.Helper()
	landed := len(data)
	if k.here.sends.got[0].Status != qp.Success {
		last := l.answers[len(l.answers)-1]
		bad := last.PSN.Sub(firstPSN)
		landed = bad * mtu
		if last.Syn != wire.NakRemoteAccess || shift+landed+mtu <= gone*page || shift+landed >= (gone+1)*page {
			l.t.Fatalf("NAK %v of packet %d, at %d; the page that went is at %d", last.Syn, bad, shift+landed, gone*page)
		}
		k.here.wantStatuses("WRITE", k.here.sends.got, qp.RemAccessErr)
	}
	for p := range 32 {
		if p == gone {
			continue
		}
		got, err := hex.DecodeString(c.Tell("get %d %d", p*page, page))
		if err != nil {
			l.t.Fatal(err)
		}
		for i, b := range got {
			at := p*page + i - shift
			want := byte(filler)
			if at >= 0 && at < landed {
				want = data[at]
			}
			// The packet that failed may have landed in part.
			if b != want && (at < landed || at >= landed+mtu) {
				l.t.Fatalf("page %d, byte %d is %#x, want %#x (%d bytes are acknowledged)", p, i, b, want, landed)
			}
		}
	}
}
