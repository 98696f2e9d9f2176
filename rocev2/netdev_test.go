package rocev2

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/capture"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/internal/control"
	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/internal/veth"
	"github.com/urxe/urxe/rocev2/cc"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/xdp"
)

// overLinks runs a test over each way that frames may go.
func overLinks(t *testing.T, f func(t *testing.T, kind LinkKind)) {
	for _, kind := range []LinkKind{LinkAFXDP, LinkAFPacket} {
		t.Run(kind.String(), func(t *testing.T) { f(t, kind) })
	}
}

// openEnds opens a Port at both ends of a veth pair, over AF_XDP.
func openEnds(t testing.TB, c nettest.Config) (*nettest.Pair, [2]*Port) {
	t.Helper()
	return openEndsOver(t, c, LinkAFXDP)
}

func openEndsOver(t testing.TB, c nettest.Config, kind LinkKind) (pair *nettest.Pair, ports [2]*Port) {
	t.Helper()
	pair = nettest.New(t, c)
	for i, e := range pair.Ends {
		if err := e.NS.Do(func() (err error) {
			ports[i], err = OpenNetdev(e.Name, NetdevOptions{Name: fmt.Sprintf("dev%d", i), Link: kind})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := ports[i].Close(); err != nil {
				t.Errorf("close port %d: %v", i, err)
			}
		})
	}
	return pair, ports
}

// indexOf returns the GID index of an address.
func indexOf(t testing.TB, p *Port, a netip.Addr) uint8 {
	t.Helper()
	for i, g := range p.GIDs() {
		if g == ib.GIDFromAddr(a) {
			return uint8(i)
		}
	}
	t.Fatalf("%v is not among the GIDs %v", a, p.GIDs())
	return 0
}

// await waits for n completions while the workers' goroutines work.
func await(t testing.TB, cq *compQueue, n int) []qp.Completion {
	t.Helper()
	var cs []qp.Completion
	for limit := time.Now().Add(20 * time.Second); len(cs) < n; {
		if time.Now().After(limit) {
			t.Fatalf("%d of %d completions came", len(cs), n)
		}
		if got := cq.take(); got != nil {
			cs = append(cs, got...)
			continue
		}
		time.Sleep(50 * time.Microsecond)
	}
	for _, c := range cs {
		if c.Status != qp.Success {
			t.Fatalf("completion %d: %v", c.ID, c.Status)
		}
	}
	return cs
}

func TestNetdevs(t *testing.T) { overLinks(t, testNetdevs) }

func testNetdevs(t *testing.T, kind LinkKind) {
	for _, c := range []struct {
		mtu     int
		path    ib.MTU
		queues  int
		address func(*nettest.End) netip.Addr
	}{
		{1500, ib.MTU1024, 1, func(e *nettest.End) netip.Addr { return e.V4 }},
		{1500, ib.MTU256, 2, func(e *nettest.End) netip.Addr { return e.LL }},
		{9000, ib.MTU4096, 2, func(e *nettest.End) netip.Addr { return e.V6 }},
	} {
		t.Run(fmt.Sprintf("mtu=%d/path=%v/queues=%d", c.mtu, c.path, c.queues), func(t *testing.T) {
			pair, ports := openEndsOver(t, nettest.Config{MTU: c.mtu, Queues: c.queues}, kind)
			const size = 300_000
			var ends [2][]*endpoint
			for i := range ends {
				for range 3 {
					e := newEndpoint(t, ports[i], size, 16)
					e.slow = true // so may the machine be
					ends[i] = append(ends[i], e)
				}
			}
			for k := range 3 {
				for i := range ends {
					e, peer := ends[i][k], ends[1-i][k]
					dgid := ib.GIDFromAddr(c.address(pair.Ends[1-i]))
					sgid := indexOf(t, ports[i], c.address(pair.Ends[i]))
					if err := e.connectFrom(sgid, peer.Number(), dgid, c.path); err != nil {
						t.Fatal(err)
					}
				}
				fill(ends[0][k].buf, uint64(k))
			}
			for k := range 3 {
				x, y := ends[0][k], ends[1][k]
				x.write(1, y, 0, 200_001)
				y.recv(2, 200_001, 50_000)
				x.send(3, 200_001, 40_000)
				x.read(4, y, 250_000, 50_000)
			}
			for k := range 3 {
				x, y := ends[0][k], ends[1][k]
				await(t, &x.cq, 3)
				await(t, &y.cq, 1)
				ports[1].Barrier() // what its worker wrote is to be seen here
				wantSame(t, "WRITE and SEND", x.buf[:240_001], y.buf[:240_001])
				wantSame(t, "READ", y.buf[250_000:], x.buf[250_000:])
			}
			for i, p := range ports {
				for v, n := range p.Drops() {
					if n != 0 && v > int(wire.Accepted) && v < int(wire.DropDuplicate) {
						t.Errorf("port %d dropped %d packets: %v", i, n, wire.Verdict(v))
					}
				}
			}
		})
	}
}

func TestSecondOpenerNamesTheHolder(t *testing.T) { overLinks(t, testSecondOpenerNamesTheHolder) }

func testSecondOpenerNamesTheHolder(t *testing.T, kind LinkKind) {
	pair, _ := openEndsOver(t, nettest.Config{}, kind)
	err := pair.Ends[0].NS.Do(func() error {
		var err error
		for _, other := range []LinkKind{LinkAuto, LinkAFXDP, LinkAFPacket} {
			var p *Port
			if p, err = OpenNetdev(pair.Ends[0].Name, NetdevOptions{Link: other}); err == nil {
				p.Close()
				t.Errorf("opened as %v beside %v", other, kind)
			}
		}
		return err
	})
	if !errors.Is(err, control.ErrHeld) || !strings.Contains(err.Error(), pair.Ends[0].Name) {
		t.Fatalf("error %v; want ErrHeld", err)
	}
}

// connectEnds joins x at end 0 and y at end 1 by their IPv4 addresses.
func connectEnds(t testing.TB, pair *nettest.Pair, x, y *endpoint, mtu ib.MTU) {
	t.Helper()
	for i, e := range []*endpoint{x, y} {
		other := []*endpoint{y, x}[i]
		sgid := indexOf(t, e.port, pair.Ends[i].V4)
		if err := e.connectFrom(sgid, other.Number(), ib.GIDFromAddr(pair.Ends[1-i].V4), mtu); err != nil {
			t.Fatal(err)
		}
	}
}

// Two ports of one host, without namespaces between them.
func TestBothEndsInOneNamespace(t *testing.T) {
	nettest.Require(t)
	ns, err := veth.NewNS()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	for _, args := range []string{
		"link add va type veth peer name vb", "addr add 10.1.0.1/24 dev va", "addr add 10.1.0.2/24 dev vb", "link set va up", "link set vb up",
	} {
		if err := ns.Run("ip", strings.Fields(args)...); err != nil {
			t.Fatal(err)
		}
	}
	addrs := [2]netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")}
	var ends [2]*endpoint
	for i, name := range []string{"va", "vb"} {
		var p *Port
		if err := ns.Do(func() (err error) { p, err = OpenNetdev(name, NetdevOptions{}); return err }); err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		ends[i] = newEndpoint(t, p, 100_000, 16)
		defer ends[i].Destroy()
	}
	for i, e := range ends {
		if err := e.connectFrom(indexOf(t, e.port, addrs[i]), ends[1-i].Number(), ib.GIDFromAddr(addrs[1-i]), ib.MTU1024); err != nil {
			t.Fatal(err)
		}
	}
	fill(ends[0].buf, 1)
	ends[0].write(1, ends[1], 0, 100_000)
	await(t, &ends[0].cq, 1)
	ends[1].port.Barrier()
	wantSame(t, "WRITE", ends[0].buf, ends[1].buf)
}

// Other processes ask the holder of an interface for its counters and for a capture.
func TestHolderServes(t *testing.T) {
	pair, ports := openEnds(t, nettest.Config{})
	x, y := newEndpoint(t, ports[0], 10_000, 16), newEndpoint(t, ports[1], 10_000, 16)
	x.slow = true // each packet is to be sent once
	connectEnds(t, pair, x, y, ib.MTU1024)
	call := func(command string) (out io.ReadCloser) {
		t.Helper()
		if err := pair.Ends[0].NS.Do(func() (err error) {
			out, err = control.Call(pair.Ends[0].Name, command)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	live := call("capture")
	r, err := capture.NewReader(live)
	if err != nil {
		t.Fatal(err)
	}
	x.write(1, y, 0, 3000)
	await(t, &x.cq, 1)
	for i, want := range []capture.Direction{capture.Out, capture.Out, capture.Out, capture.In} {
		pkt, err := r.Next()
		if err != nil || pkt.Direction != want {
			t.Fatalf("packet %d of the live capture: %+v, %v; want %v", i, pkt, err, want)
		}
	}
	live.Close()
	stats := call("stats")
	defer stats.Close()
	var s Stats
	if err := json.NewDecoder(stats).Decode(&s); err != nil {
		t.Fatal(err)
	}
	if s.Link != "af_xdp" || s.Counters["sent_pkts"] != 3 || s.XDP == nil || s.XDP.Sockets.TxPackets != 3 || s.XDP.Program.Redirected != 1 {
		t.Errorf("stats %+v, XDP %+v", s, s.XDP)
	}
	// The capture's end leaves nothing behind.
	for limit := time.Now().Add(5 * time.Second); ports[0].sinks.list.Load() != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("a capture goes on without its reader")
		}
	}
}

// A Step over AF_XDP allocates nothing, nor does the goroutine that waits.
func TestNetdevDoesNotAllocate(t *testing.T) { overLinks(t, testNetdevDoesNotAllocate) }

func testNetdevDoesNotAllocate(t *testing.T, kind LinkKind) {
	pair, ports := openEndsOver(t, nettest.Config{}, kind)
	x, y := newEndpoint(t, ports[0], 10_000, 64), newEndpoint(t, ports[1], 10_000, 64)
	connectEnds(t, pair, x, y, ib.MTU1024)
	wqe := &qp.SendWQE{Opcode: qp.WRWrite, SGEs: x.sge(0, 3000), RKey: y.mr.Key}
	x.cq.cs = make([]qp.Completion, 0, 64)
	round := func() {
		for range 10 {
			x.sq.Post(wqe)
		}
		x.Doorbell()
		for x.cq.len() < 10 {
			x.Worker().Poll()
			y.Worker().Poll()
		}
		x.cq.mu.Lock()
		x.cq.cs = x.cq.cs[:0]
		x.cq.mu.Unlock()
	}
	round()
	if n := testing.AllocsPerRun(50, round); n != 0 {
		t.Errorf("%v allocations in 10 messages", n)
	}
	w := x.Worker()
	if n := testing.AllocsPerRun(50, func() { w.line.Wait(clock.Now().Add(time.Microsecond), false) }); n != 0 {
		t.Errorf("%v allocations a Wait", n)
	}
}

// The interface goes away under a connection: its requests fail, or are flushed when it had failed before.
func TestInterfaceRemovedUnderAConnection(t *testing.T) {
	overLinks(t, testInterfaceRemovedUnderAConnection)
}

func testInterfaceRemovedUnderAConnection(t *testing.T, kind LinkKind) {
	pair, ports := openEndsOver(t, nettest.Config{}, kind)
	x, y := newEndpoint(t, ports[0], 1<<20, 16), newEndpoint(t, ports[1], 1<<20, 16)
	connectEnds(t, pair, x, y, ib.MTU1024)
	x.write(1, y, 0, 1000)
	await(t, &x.cq, 1)
	if err := pair.Ends[0].NS.Run("ip", "link", "del", pair.Ends[0].Name); err != nil {
		t.Fatal(err)
	}
	x.write(2, y, 0, 1<<20)
	limit := time.Now().Add(20 * time.Second)
	for x.cq.len() == 0 && time.Now().Before(limit) {
		time.Sleep(time.Millisecond)
	}
	if cs := x.cq.take(); len(cs) != 1 || cs[0].Status != qp.RetryExcErr && cs[0].Status != qp.WRFlushErr {
		t.Fatalf("completions %+v, want one with RETRY_EXC_ERR or WR_FLUSH_ERR", cs)
	}
	for i, p := range ports { // its peer went with it
		for limit := time.Now().Add(5 * time.Second); p.State() != ib.PortDown || !errors.Is(p.Err(), xdp.ErrGone); time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("the interface of port %d is removed: it is %v, %v", i, p.State(), p.Err())
			}
		}
	}
}

// A link that is down loses packets, and goes on when it is up again.
func TestLinkDownAndUp(t *testing.T) { overLinks(t, testLinkDownAndUp) }

func testLinkDownAndUp(t *testing.T, kind LinkKind) {
	pair, ports := openEndsOver(t, nettest.Config{}, kind)
	x, y := newEndpoint(t, ports[0], 1<<20, 64), newEndpoint(t, ports[1], 1<<20, 64)
	connectEnds(t, pair, x, y, ib.MTU1024)
	fill(x.buf, 1)
	if err := pair.Ends[1].NS.SetUp(pair.Ends[1].Name, false); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		x.write(uint64(i), y, i<<17, 1<<17)
	}
	time.Sleep(150 * time.Millisecond)
	if n := x.cq.len(); n != 0 {
		t.Fatalf("%d requests ended while the link was down: %v", n, x.cq.take())
	}
	if err := pair.Ends[1].NS.SetUp(pair.Ends[1].Name, true); err != nil {
		t.Fatal(err)
	}
	await(t, &x.cq, 8)
	ports[1].Barrier() // what its worker wrote is to be seen here
	wantSame(t, "WRITE", x.buf, y.buf)
}

// A QP whose peer's MAC address isn't known waits for it.
func TestUnknownNeighbourParks(t *testing.T) { overLinks(t, testUnknownNeighbourParks) }

func testUnknownNeighbourParks(t *testing.T, kind LinkKind) {
	pair, ports := openEndsOver(t, nettest.Config{}, kind)
	x, y := newEndpoint(t, ports[0], 1000, 16), newEndpoint(t, ports[1], 1000, 16)
	x.slow = true // the kernel asks for a neighbour once a second
	late := netip.MustParseAddr("10.77.0.99")
	if err := x.connectFrom(indexOf(t, ports[0], pair.Ends[0].V4), y.Number(), ib.GIDFromAddr(late), ib.MTU1024); err != nil {
		t.Fatal(err)
	}
	x.write(1, y, 0, 1000)
	time.Sleep(100 * time.Millisecond)
	if n := x.cq.len(); n != 0 {
		t.Fatalf("a request to an unknown neighbour ended: %v", x.cq.take())
	}
	e := pair.Ends[1]
	if err := e.NS.Run("ip", "addr", "add", late.String()+"/24", "dev", e.Name); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if gids := ports[1].GIDs(); gids[len(gids)-1] == ib.GIDFromAddr(late) {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("the new address is not among the GIDs")
		}
	}
	if err := y.connectFrom(indexOf(t, ports[1], late), x.Number(), ib.GIDFromAddr(pair.Ends[0].V4), ib.MTU1024); err != nil {
		t.Fatal(err)
	}
	await(t, &x.cq, 1)
}

// The rate that a connection comes back to is the link's.
func TestLineRateOfTheLink(t *testing.T) {
	_, ports := openEnds(t, nettest.Config{})
	if got := ports[0].congestion.LineRate; got != 10*cc.Gbps { // what veth says
		t.Errorf("line rate %d b/s, want 10 Gb/s", got)
	}
	p := nettest.New(t, nettest.Config{})
	if err := p.Ends[0].NS.Do(func() error {
		port, err := OpenNetdev(p.Ends[0].Name, NetdevOptions{Congestion: cc.Params{LineRate: 3 * cc.Gbps}})
		if err != nil {
			return err
		}
		if port.congestion.LineRate != 3*cc.Gbps {
			t.Errorf("line rate %d b/s, want the one given", port.congestion.LineRate)
		}
		return port.Close()
	}); err != nil {
		t.Fatal(err)
	}
}

// A tunnel's packets have no frames, and no MAC addresses.
func TestNoEthernet(t *testing.T) {
	nettest.Require(t)
	ns, err := veth.NewNS()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if err := ns.Run("ip", "tuntap", "add", "dev", "tun0", "mode", "tun"); err != nil {
		nettest.SkipOrFail(t, "a tun device: "+err.Error())
	}
	if err := ns.Do(func() error { _, err := OpenNetdev("tun0", NetdevOptions{}); return err }); err == nil ||
		!strings.Contains(err.Error(), "open tun0: it is no Ethernet interface") {
		t.Errorf("tun0: %v", err)
	}
}
