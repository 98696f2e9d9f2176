package umad

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// TestInGuest is this package against a real kernel. Package kerneltest runs it
// in guests with rdma_rxe and ib_umad; anywhere else there is nothing to do.
func TestInGuest(t *testing.T) {
	if os.Getenv("URXE_UMAD_GUEST") == "" {
		return
	}
	t.Run("List", inGuestList)
	t.Run("NoSubnetManagement", inGuestNoSubnetManagement)
	t.Run("Timeout", inGuestTimeout)
	t.Run("Agents", inGuestAgents)
	t.Run("RMPP", inGuestRMPP)
	t.Run("KernelSends", inGuestKernelSends)
	t.Run("KernelReceives", inGuestKernelReceives)
	t.Run("IsSM", inGuestIsSM)
}

func inGuestList(t *testing.T) {
	ports, err := List()
	if err != nil || len(ports) != 1 {
		t.Fatalf("%d ports, %v", len(ports), err)
	}
	p := ports[0]
	if p.Device != "rxe0" || p.Port != 1 || p.Umad != "umad0" || p.LinkLayer != "Ethernet" || p.State != ib.PortActive ||
		p.GUID == 0 || p.NodeGUID == 0 || len(p.PKeys) != 1 || p.PKeys[0] != ib.PKeyDefault {
		t.Errorf("the port is %+v", p)
	}
	if _, err := Open(Options{}); err == nil {
		t.Error("a RoCE port was opened as InfiniBand")
	}
}

// QP0 is refused by RoCE devices.
func inGuestNoSubnetManagement(t *testing.T) {
	if p, err := Open(Options{Device: "rxe0", Agents: Manager()}); !errors.Is(err, unix.EPROTONOSUPPORT) {
		t.Errorf("subnet management on RoCE: %v", err)
		p.Close()
	}
}

func general(t *testing.T, agents ...Agent) *Port {
	t.Helper()
	p, err := Open(Options{Device: "rxe0", Agents: agents})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// self is the guest's own address on its IPv6 GID. With an IPv4 one the kernel
// compares an answer's GID with bytes of no GRH, and so finds no request for it.
func self(t *testing.T) mad.Addr {
	t.Helper()
	for i := range uint8(16) {
		text, err := os.ReadFile(fmt.Sprintf("/sys/class/infiniband/rxe0/ports/1/gids/%d", i))
		if err != nil {
			break
		}
		g, err := ib.ParseGID(string(bytes.TrimSpace(text)))
		if err == nil && !g.IsZero() && !g.Is4() && !g.IsLinkLocal() {
			return mad.Addr{QPN: 1, GRH: mad.GRH{Present: true, GID: g, GIDIndex: i, HopLimit: 64}}
		}
	}
	t.Fatal("the guest has no IPv6 GID")
	return mad.Addr{}
}

func query(t *testing.T, tid uint64, timeout time.Duration, retries int) *mad.Packet {
	p := &mad.Packet{Addr: self(t), Timeout: timeout, Retries: retries}
	p.MAD().InitSA(mad.MethodGetTable, mad.AttrNodeRecord, 1)
	p.MAD().SetTID(tid)
	return p
}

// A request that nobody answers comes back in its time, with its key.
func inGuestTimeout(t *testing.T) {
	p := general(t, Agent{Class: mad.ClassSubnAdm})
	begin := time.Now()
	if err := p.Send(query(t, 77, 50*time.Millisecond, 3)); err != nil {
		t.Fatal(err)
	}
	if err := p.Send(query(t, 77, time.Second, 0)); err == nil {
		t.Error("a TID that is under way was taken")
	}
	var ps [4]mad.Packet
	n, err := p.Recv(ps[:])
	took := time.Since(begin)
	if err != nil || n != 1 || !errors.Is(ps[0].Err, mad.ErrTimeout) || ps[0].Key() != 77 ||
		ps[0].MAD().Method() != mad.MethodGetTable || ps[0].MAD().Attribute() != mad.AttrNodeRecord {
		t.Errorf("got %d packets: %v, %v", n, &ps[0], err)
	}
	if took < 190*time.Millisecond || took > 2*time.Second {
		t.Errorf("it came back after %v, want 200 ms", took)
	}
}

// A second agent for the same methods is refused; one that only asks is not.
func inGuestAgents(t *testing.T) {
	server := Agent{Class: mad.ClassSubnAdm, Methods: []mad.Method{mad.MethodGet}}
	general(t, server)
	general(t, Agent{Class: mad.ClassSubnAdm}, Agent{Class: mad.ClassPerf}, Agent{Class: mad.ClassBM})
	if p, err := Open(Options{Device: "rxe0", Agents: []Agent{server}}); err == nil {
		t.Error("two agents have one method")
		p.Close()
	}
	before := openFiles(t)
	for range 40 {
		p, err := Open(Options{Device: "rxe0", Agents: []Agent{{Class: mad.ClassSubnAdm}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d files were open before, %d after", before, after)
	}
}

// A query and a long answer by RMPP go through the kernel, from one program of
// the guest to another, which is the subnet administration here.
func inGuestRMPP(t *testing.T) {
	server := general(t, Agent{Class: mad.ClassSubnAdm, Methods: []mad.Method{mad.MethodGet, mad.MethodGetTable}})
	client := general(t, Agent{Class: mad.ClassSubnAdm})
	table := make([]byte, 20000)
	for i := range table {
		table[i] = byte(i * 7)
	}
	go serveTable(t, server, table)
	if err := client.Send(query(t, 5, 2*time.Second, 2)); err != nil {
		t.Fatal(err)
	}
	if m := receive(t, client); m.Err != nil || !bytes.Equal(m.Bytes, table) {
		t.Errorf("%d bytes came, %v", len(m.Bytes), m.Err)
	}
}

func flush(t *testing.T, p *Port, r *mad.RMPP) {
	var out mad.Packet
	for r.Next(&out) {
		if err := p.Send(&out); err != nil && !errors.Is(err, mad.ErrClosed) {
			t.Error(err)
		}
	}
}

// serveTable answers GetTable with a table until the port is closed.
func serveTable(t *testing.T, p *Port, table []byte) {
	var r mad.RMPP
	ps := make([]mad.Packet, 16)
	for {
		n, err := p.Recv(ps)
		if err != nil {
			return
		}
		for i := range ps[:n] {
			if r.Handle(&ps[i], clock.Now()) {
				continue
			}
			ps[i].MAD().Respond(mad.StatusOK)
			if ps[i].Addr.GRH.HopLimit == 0 {
				ps[i].Addr.GRH.HopLimit = 64
			}
			if err := r.Send(&ps[i], table, clock.Now()); err != nil {
				t.Error(err)
			}
		}
		flush(t, p, &r)
	}
}

// kernelAgent is an agent of subnet administration whose RMPP the kernel does.
func kernelAgent(t *testing.T, methods ...mad.Method) (f *os.File, id uint32) {
	t.Helper()
	f, err := openNonblock("/dev/infiniband/umad0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	b := (&Agent{Class: mad.ClassSubnAdm, Methods: methods}).request()
	host.PutUint32(b[regFlags:], 0)
	if err := control(f, ioctlRegisterAgent2, b[:]); err != nil {
		t.Fatal(err)
	}
	return f, host.Uint32(b[regID:])
}

// lengths are those of messages: around the ends of segments, and longer than
// the kernel's window of 64 segments.
var lengths = []int{1, 199, 200, 201, 400, 5000, 13000, 40000, 100000}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i/251)
	}
	return b
}

// The kernel's own RMPP sends, ours receives.
func inGuestKernelSends(t *testing.T) {
	server, id := kernelAgent(t, mad.MethodGetTable)
	client := general(t, Agent{Class: mad.ClassSubnAdm})
	for i, n := range lengths {
		if err := client.Send(query(t, uint64(i+1), 2*time.Second, 2)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, messageSize+n)
		if _, err := server.Read(b); err != nil {
			t.Fatal(err)
		}
		var p mad.Packet
		if err := parseMessage(b[:messageSize], &p); err != nil {
			t.Fatal(err)
		}
		p.MAD().Respond(mad.StatusOK)
		p.Addr.GRH.HopLimit = 64
		putMessage((*[messageSize]byte)(b), &p, id)
		const data = headerSize + 56 // Behind the header of subnet administration.
		b[headerSize+24], b[headerSize+25], b[headerSize+26] = 1, 1, 1
		if _, err := server.Write(append(b[:data], pattern(n)...)); err != nil {
			t.Fatal(err)
		}
		if m := receive(t, client); m.Err != nil || !bytes.Equal(m.Bytes, pattern(n)) {
			t.Errorf("%d bytes: %d came, %v", n, len(m.Bytes), m.Err)
		}
	}
}

// receive waits for a whole message.
func receive(t *testing.T, p *Port) mad.Message {
	t.Helper()
	var r mad.RMPP
	ps := make([]mad.Packet, 16)
	for {
		n, err := p.Recv(ps)
		if err != nil {
			t.Fatal(err)
		}
		for i := range ps[:n] {
			if !r.Handle(&ps[i], clock.Now()) {
				t.Fatalf("got %v, %v", &ps[i], ps[i].Err)
			}
		}
		flush(t, p, &r)
		if m, ok := r.Message(); ok {
			return m
		}
	}
}

// Ours sends, the kernel's own RMPP receives.
func inGuestKernelReceives(t *testing.T) {
	server := general(t, Agent{Class: mad.ClassSubnAdm, Methods: []mad.Method{mad.MethodGetTable}})
	client, id := kernelAgent(t)
	b := make([]byte, 1<<18)
	for i, n := range lengths {
		table := pattern(n)
		q := query(t, uint64(i+1), 2*time.Second, 2)
		putMessage((*[messageSize]byte)(b), q, id)
		if _, err := client.Write(b[:messageSize]); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			serveOne(t, server, table)
		}()
		k, err := client.Read(b)
		<-stop
		if err != nil || host.Uint32(b[offStatus:]) != 0 {
			t.Fatalf("%d bytes: status %d, %v", n, host.Uint32(b[offStatus:]), err)
		}
		if got := b[headerSize+56 : k]; !bytes.Equal(got[:min(n, len(got))], table) {
			t.Errorf("%d bytes: %d came, or others", n, len(got))
		}
	}
}

// serveOne answers one query with a table and waits until that has arrived.
func serveOne(t *testing.T, p *Port, table []byte) {
	var r mad.RMPP
	ps := make([]mad.Packet, 16)
	asked := false
	for !asked || r.Deadline() != clock.Never {
		n, err := p.Recv(ps)
		if err != nil {
			t.Error(err)
			return
		}
		for i := range ps[:n] {
			if r.Handle(&ps[i], clock.Now()) {
				continue
			}
			asked = true
			ps[i].MAD().Respond(mad.StatusOK)
			ps[i].Addr.GRH.HopLimit = 64
			if err := r.Send(&ps[i], table, clock.Now()); err != nil {
				t.Error(err)
			}
		}
		flush(t, p, &r)
	}
	if r.Failed != 0 {
		t.Errorf("%d transfers failed", r.Failed)
	}
}

// IsSM: RoCE ports have an issm file too in kernel 6.1, and none in 6.12; one
// program at a time has it.
func inGuestIsSM(t *testing.T) {
	a, b := general(t, Agent{Class: mad.ClassSubnAdm}), general(t, Agent{Class: mad.ClassPerf})
	err := a.SetSM(true)
	if _, stat := os.Stat("/dev/infiniband/issm0"); errors.Is(stat, fs.ErrNotExist) {
		if err == nil {
			t.Error("IsSM was set without a file to do so")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := b.SetSM(true); err == nil {
		t.Error("two programs are the SM of one port")
	}
	if i, err := a.Info(); err != nil || i.Capability&mad.CapIsSM == 0 {
		t.Logf("the driver does not show IsSM: 0x%08x, %v", uint32(i.Capability), err)
	}
	if err := a.SetSM(false); err != nil {
		t.Fatal(err)
	}
	if err := b.SetSM(true); err != nil {
		t.Errorf("after the first has left: %v", err)
	}
}
