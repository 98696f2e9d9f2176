package fabric

import (
	"runtime"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
)

// heap returns the bytes in use after a collection.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// 48,778 hosts on 4,205 switches: more than all unicast LIDs hold. The fabric
// takes at most 500 bytes a port, and forwarding tables one byte a LID.
func TestScale(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a few seconds and 300 MB")
	}
	before := heap()
	begin := time.Now()
	f := New(Defaults{})
	if err := f.BuildFatTree(58); err != nil {
		t.Fatal(err)
	}
	built := time.Since(begin)
	ports, switches := 0, 0
	for _, n := range f.Nodes() {
		ports += n.NumPorts()
		if n.isSwitch() {
			switches++
		}
	}
	bare := heap() - before
	a := attach(t, f, "h0", 1)
	answers := 0
	end, err := f.Attach(a.end.at.node, 1, func(p *mad.Packet) {
		if p.MAD().Status() == mad.StatusOK {
			answers++
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	begin = time.Now()
	mads := 0
	send := func(method mad.Method, attr mad.AttributeID, mod uint32, path []byte) {
		p := &mad.Packet{Addr: mad.Direct}
		if err := p.MAD().InitSMP(method, attr, mod, path); err != nil {
			t.Fatal(err)
		}
		if err := end.Inject(p); err != nil {
			t.Fatal(err)
		}
		mads++
	}
	for n, path := range a.paths() {
		send(mad.MethodGet, mad.AttrNodeInfo, 0, path)
		if n.isSwitch() {
			for b := range uint32(768) {
				send(mad.MethodSet, mad.AttrLinearFT, b, path)
			}
		}
	}
	took := time.Since(begin)
	full := heap() - before
	t.Logf("%d ports, built in %v; %d bytes a port; with all tables %d MB; %d MADs in %v, %.0f ns each",
		ports, built, bare/uint64(ports), full>>20, mads, took, float64(took.Nanoseconds())/float64(mads))
	if answers != mads {
		t.Errorf("%d of %d MADs were answered", answers, mads)
	}
	if bare/uint64(ports) > 500 {
		t.Errorf("%d bytes a port, want at most 500", bare/uint64(ports))
	}
	if limit := bare + uint64(switches)*uint64(ib.LIDMulticastFirst)*3/2 + uint64(ports)*400; full > limit {
		t.Errorf("%d MB with all tables, want at most %d", full>>20, limit>>20)
	}
	runtime.KeepAlive(f)
}

// One Get through the port, as a subnet manager would.
func BenchmarkGet(b *testing.B) {
	f := New(Defaults{})
	if err := f.BuildFatTree(8); err != nil {
		b.Fatal(err)
	}
	p, err := f.Open("h0", 1)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	pkt := &mad.Packet{Addr: mad.Direct, Timeout: time.Minute}
	if err := pkt.MAD().InitSMP(mad.MethodGet, mad.AttrPortInfo, 1, []byte{1, 5, 5}); err != nil {
		b.Fatal(err)
	}
	ps := make([]mad.Packet, 32)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += len(ps) {
		for k := range ps {
			pkt.MAD().SetTID(uint64(i + k))
			if err := p.Send(pkt); err != nil {
				b.Fatal(err)
			}
		}
		for got := 0; got < len(ps); {
			n, err := p.Recv(ps)
			if err != nil {
				b.Fatal(err)
			}
			got += n
		}
	}
}
