package netns

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/capture"
	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/tests/barexdp"
	"github.com/urxe/urxe/tests/owner"
	"github.com/urxe/urxe/verbs"
	"github.com/urxe/urxe/xdp"
	"github.com/urxe/urxe/xdp/afpacket"
)

// rung is a way to open an interface.
type rung struct {
	name    string
	options verbs.Options
	owner   *owner.Options // of the XDP program that has the interface already
	mapped  bool           // use its map
	link    string         // what the device is to say of itself
	says    string
}

var rungs = []rung{
	{name: "driver", options: verbs.Options{XDP: xdp.Options{Mode: xdp.ModeDriver}}, link: "af_xdp", says: "driver mode, copy"},
	{name: "generic", options: verbs.Options{XDP: xdp.Options{Mode: xdp.ModeGeneric}}, link: "af_xdp", says: "generic mode, copy"},
	{name: "pinned map", owner: &owner.Options{}, mapped: true, link: "af_xdp", says: "pinned XSKMAP"},
	{name: "pinned map, generic", owner: &owner.Options{Generic: true}, mapped: true, link: "af_xdp", says: "in generic mode"},
	{name: "beside another program", owner: &owner.Options{}, link: "af_packet", says: "packet socket"},
	{name: "AF_PACKET", options: verbs.Options{Link: verbs.LinkAFPacket}, link: "af_packet", says: "packet socket"},
}

// openRung opens an end by a rung, until the test's end.
func openRung(t testing.TB, e *nettest.End, r rung) (*verbs.Device, *owner.Owner) {
	t.Helper()
	o := r.options
	var w *owner.Owner
	if r.owner != nil {
		var err error
		if w, err = owner.Attach(e, *r.owner); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		if r.mapped {
			o.XDP.XSKMap = w.Path
		}
	}
	d := openWith(t, e.NS, e.Name, o)
	if s := d.Stats(); s.Link != r.link || !strings.Contains(s.Rung, r.says) || s.Trouble != "" {
		t.Fatalf("link %s, rung %q, trouble %q; want %s, %q", s.Link, s.Rung, s.Trouble, r.link, r.says)
	}
	return d, w
}

// Every operation over every way that packets may go, the other end by another one:
// none to 64 KiB, by both versions of IP, in both directions, each byte checked.
func TestEachRung(t *testing.T) {
	nettest.Require(t)
	for _, r := range rungs {
		for _, mtu := range []ib.MTU{ib.MTU1024, ib.MTU4096} {
			t.Run(fmt.Sprintf("%s/path-mtu=%d", r.name, mtu.Bytes()), func(t *testing.T) {
				p := nettest.New(t, nettest.Config{MTU: max(1500, mtu.Bytes()+ib.RoCEOverhead), Queues: 2})
				d0, _ := openRung(t, p.Ends[0], r)
				devs := [2]*verbs.Device{d0, open(t, p.Ends[1])}
				if got := devs[0].QueryPort().ActiveMTU; got != mtu {
					t.Fatalf("active path MTU %v", got)
				}
				for _, v6 := range []bool{false, true} {
					addr := func(i int) netip.Addr {
						if v6 {
							return p.Ends[i].V6
						}
						return p.Ends[i].V4
					}
					a, b := newSide(devs[0], 1<<16+100, addr(0)), newSide(devs[1], 1<<16+100, addr(1))
					connect(t, a, b, verbs.ConnectOptions{PathMTU: mtu})
					for i, n := range []int{0, 1, 1023, 4097, 1 << 16} {
						everyOperation(t, a, b, n, uint64(i), nil)
						everyOperation(t, b, a, n, uint64(i)+100, nil)
					}
					a.destroy(t)
					b.destroy(t)
				}
			})
		}
	}
}

// Who isn't on the list is dropped on every kind of link, and counted and captured as
// that; the list can change meanwhile.
func TestAllowPeersOnEachRung(t *testing.T) {
	nettest.Require(t)
	for _, r := range rungs {
		t.Run(r.name, func(t *testing.T) {
			p := nettest.New(t, nettest.Config{})
			r.options.AllowPeers = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.PrefixFrom(p.Ends[1].V6, 128)}
			d0, _ := openRung(t, p.Ends[0], r)
			devs := [2]*verbs.Device{d0, open(t, p.Ends[1])}
			a, b := newSides(t, p, devs, 5000, verbs.ConnectOptions{})
			c := startCapture(t, p.Ends[0], devs[0])
			fill(b.buf, 1)
			b.write(t, a, 1, 0, 5000)
			eventually(t, "packets of a stranger dropped", func() bool { return devs[0].Stats().Drops["not_a_peer"] >= 5 })
			if s := devs[0].Stats(); s.Counters["sent_pkts"] != 0 {
				t.Errorf("a stranger was answered: %v", s.Counters)
			}
			if err := devs[0].SetAllowPeers([]netip.Prefix{netip.MustParsePrefix("10.77.0.0/30")}); err != nil {
				t.Fatal(err)
			}
			b.done(t, 1)
			settle(a)
			same(t, "WRITE", a.buf, b.buf)
			file := c.stop(t)
			verdicts := map[string]int{}
			for _, pkt := range recorded(t, file) {
				verdicts[pkt.Comment]++
			}
			if verdicts["dropped: not_a_peer"] < 5 || verdicts["accepted"] < 5 {
				t.Errorf("the capture has %v", verdicts)
			}
			if err := devs[0].SetAllowPeers([]netip.Prefix{{}}); !errors.Is(err, verbs.ErrInvalid) {
				t.Errorf("a bad list: %v", err)
			}
			a.destroy(t)
			b.destroy(t)
		})
	}
}

// recorded reads a capture.
func recorded(t *testing.T, path string) (list []capture.Packet) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := capture.NewReader(f)
	for err == nil {
		var p *capture.Packet
		if p, err = r.Next(); err == nil {
			kept := *p
			kept.Data = bytes.Clone(p.Data)
			list = append(list, kept)
		}
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	return list
}

// Datagrams to a multicast group reach its members by every rung, and leave by it.
func TestMulticastOnEachRung(t *testing.T) {
	nettest.Require(t)
	for _, r := range rungs {
		t.Run(r.name, func(t *testing.T) {
			p := nettest.New(t, nettest.Config{})
			d0, w := openRung(t, p.Ends[0], r)
			sides := [2]*side{newDatagramSide(t, d0), newDatagramSide(t, open(t, p.Ends[1]))}
			for _, name := range []string{"239.1.2.3", "ff0e::4242"} {
				addr := netip.MustParseAddr(name)
				group := ib.GIDFromAddr(addr)
				if r.mapped { // what is redirected is the owner's business
					if err := w.Take(group); err != nil {
						t.Fatal(err)
					}
				}
				for _, s := range sides {
					if err := s.qp.AttachMcast(group, 0xc000); err != nil {
						t.Fatal(err)
					}
				}
				for i, from := range sides {
					for _, s := range sides {
						must(s.qp.PostRecv(verbs.RecvWR{SGEs: []verbs.SGE{s.mr.SGE(0, 200)}}))
					}
					src := p.Ends[i].V4
					if addr.Is6() {
						src = p.Ends[i].V6
					}
					av := verbs.AV{DGID: group, SGIDIndex: uint8(gidIndex(from.dev, src))}
					must(from.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, InlineData: []byte(name), AH: must(from.pd.CreateAH(av)),
						RemoteQPN: ib.QPNMulticast, RemoteQKey: qkey}))
					for k, s := range sides { // it is a member itself
						wc := s.done(t, 1)[0]
						if got := string(s.buf[verbs.GRHLen:][:len(name)]); got != name || wc.SrcQP != from.qp.Number() {
							t.Errorf("from %d to %d: %q, %+v", i, k, got, wc)
						}
					}
				}
			}
		})
	}
}

// The owner starts anew under traffic, takes our socket out, unpins its map: transfers
// go on, and what is wrong is said.
func TestOwnerChangesUnderTraffic(t *testing.T) {
	nettest.Require(t)
	p := nettest.New(t, nettest.Config{})
	d0, w := openRung(t, p.Ends[0], rung{owner: &owner.Options{}, mapped: true, link: "af_xdp", says: "pinned XSKMAP"})
	devs := [2]*verbs.Device{d0, open(t, p.Ends[1])}
	a, b := newSides(t, p, devs, 1<<16, verbs.ConnectOptions{Timeout: 17}) // half a second: a look at the map comes as often
	transfer := func(n uint64) {
		t.Helper()
		fill(b.buf, n)
		b.write(t, a, n, 0, 1<<16)
		b.done(t, 1)
		settle(a)
		same(t, "WRITE", a.buf, b.buf)
	}
	transfer(1)
	if err := w.Map().Delete(uint32(0)); err != nil {
		t.Fatal(err)
	}
	transfer(2)
	if err := w.Replace(p.Ends[0].V4.As16()); err != nil {
		t.Fatal(err)
	}
	transfer(3)
	if err := w.Unpin(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "that the map is gone", func() bool { return strings.Contains(devs[0].Stats().Trouble, "no map is pinned") })
	transfer(4)
	if err := w.Pin(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no trouble", func() bool { return devs[0].Stats().Trouble == "" })
	// What the owner redirects and isn't for us is dropped, and counted.
	stranger := netip.MustParseAddr("10.77.0.77")
	if err := w.Take(stranger.As16()); err != nil {
		t.Fatal(err)
	}
	e := p.Ends[1]
	if err := e.NS.Run("ip", "neigh", "add", stranger.String(), "lladdr", p.Ends[0].MAC.String(), "dev", e.Name); err != nil {
		t.Fatal(err)
	}
	if err := e.NS.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, make([]byte, 40), 0, &unix.SockaddrInet4{Port: 4791, Addr: stranger.As4()})
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a packet to a foreign address dropped", func() bool { return devs[0].Stats().Drops["bad_address"] == 1 })
	a.destroy(t)
	b.destroy(t)
}

// VLAN tags are there over AF_PACKET: a tagged packet with nobody to take it reaches
// the verdict, with its tag.
func TestTaggedOverAFPacket(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	d0, _ := openRung(t, p.Ends[0], rungs[len(rungs)-1])
	c := startCapture(t, p.Ends[0], d0)
	f := barexdp.Frame(p.Ends[1], p.Ends[0], 100)
	f = slices.Concat(f[:12], []byte{0x81, 0, 0, 7}, f[12:])
	if err := p.Ends[1].NS.Do(func() error {
		s, err := afpacket.Open(p.Ends[1].Name, afpacket.Options{})
		if err != nil {
			return err
		}
		room, i, _ := s.Reserve(len(f))
		s.Send(i, copy(room, f))
		return errors.Join(s.Flush(), s.Close())
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the packet", func() bool { return packets(d0) == 1 })
	if list := recorded(t, c.stop(t)); len(list) != 1 || !bytes.Equal(list[0].Data[12:18], []byte{0x81, 0, 0, 7, 8, 0}) {
		t.Errorf("captured: %+v", list)
	}
}
