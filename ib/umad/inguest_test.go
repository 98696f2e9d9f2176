package umad

import (
	"bytes"
	"errors"
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

// self is the guest's own address on its IPv4 GID.
func self(t *testing.T) mad.Addr {
	t.Helper()
	text, err := os.ReadFile("/sys/class/infiniband/rxe0/ports/1/gids/1")
	if err != nil {
		t.Fatal(err)
	}
	g, err := ib.ParseGID(string(bytes.TrimSpace(text)))
	if err != nil {
		t.Fatal(err)
	}
	return mad.Addr{QPN: 1, GRH: mad.GRH{Present: true, GID: g, GIDIndex: 1, HopLimit: 64}}
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
	var r mad.RMPP
	ps := make([]mad.Packet, 16)
	for {
		n, err := client.Recv(ps)
		if err != nil {
			t.Fatal(err)
		}
		for i := range ps[:n] {
			if !r.Handle(&ps[i], clock.Now()) {
				t.Fatalf("got %v, %v", &ps[i], ps[i].Err)
			}
		}
		flush(t, client, &r)
		if m, ok := r.Message(); ok {
			if m.Err != nil || !bytes.Equal(m.Bytes, table) {
				t.Errorf("%d bytes came, %v", len(m.Bytes), m.Err)
			}
			return
		}
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
