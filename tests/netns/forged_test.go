package netns

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/rocev2/cm"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/verbs/rdmacm"
)

// forge makes a REQ for a service that nobody offers, from an address of the end's IPv6 network that nobody has.
func (b *blaster) forge(mac [6]byte) []byte {
	src, dst := ib.GIDFromAddr(b.to.V6), ib.GIDFromAddr(b.to.V6)
	binary.BigEndian.PutUint32(src[10:], b.r.Uint32()|1)
	m := cm.New(cm.Config{})
	m.Connect(cm.Request{Service: 1, Local: src, Remote: dst, QPN: 2}, 1)
	var d cm.Datagram
	m.Next(&d)
	var t wire.Template
	t.Set(&wire.Flow{SrcMAC: mac, DstMAC: [6]byte(b.to.MAC), Src: src, Dst: dst, HopLimit: 64, SrcPort: 0xc123})
	h := wire.Header{Opcode: wire.UDSendOnly, PKey: ib.PKeyDefault, DestQP: ib.QPNGeneralServices, SrcQP: ib.QPNGeneralServices, QKey: ib.QKeyGSI, MigReq: true}
	f := wire.Frame{Frag: [2][]byte{make([]byte, t.FrameLen(h.Opcode, mad.Size))}}
	copy(t.Emit(&f, &h, mad.Size)[0], d.MAD[:])
	t.Seal(&f)
	return f.Frag[0]
}

// Requests from addresses that nobody has come in a flood. The kernel has no room to look for all of them, and none answers.
// A host that has never been here is served meanwhile, at once.
func TestForgedRequests(t *testing.T) {
	p, devs := openPair(t, nettest.Config{Bridge: true})
	b := newBlaster(t, p, 1)
	at := netip.AddrPortFrom(p.Ends[1].V6, 7777)
	l := must(rdmacm.Listen(devs[1], at, rdmacm.ListenOptions{}))
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var flood sync.WaitGroup
	flood.Go(func() {
		for mac := [6]byte(p.Ends[0].MAC); ctx.Err() == nil; time.Sleep(500 * time.Microsecond) {
			if _, err := unix.Write(b.fd, b.forge(mac)); err != nil && !errors.Is(err, unix.ENOBUFS) {
				t.Error(err)
			}
		}
	})
	defer flood.Wait()
	defer cancel()
	time.Sleep(2 * time.Second) // as long as answers wait, and more
	accepted := make(chan error, 1)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			_, err = r.Accept(ctx, rdmacm.Options{QP: newSide(devs[1], 64, at.Addr()).qp})
		}
		accepted <- err
	}()
	start := time.Now()
	_, err := rdmacm.Dial(ctx, devs[0], at, rdmacm.DialOptions{Options: rdmacm.Options{QP: newSide(devs[0], 64, at.Addr()).qp}})
	if err := errors.Join(err, <-accepted); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d > 4*time.Second { // then a message was sent again
		t.Errorf("connected after %v", d)
	}
}
