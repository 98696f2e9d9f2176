package umad

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/tests/conform"
)

// fakePort is a port as sysfs shows it.
type fakePort struct {
	umad, dev, port   string
	gid, layer        string
	state, phys, caps string
}

var fakePorts = []fakePort{
	{"umad0", "rxe0", "1", "fe80:0000:0000:0000:5054:00ff:fe12:3456", "Ethernet", "4: ACTIVE", "5: LinkUp", "0x00010000"},
	{"umad1", "mlx5_0", "1", "fe80:0000:0000:0000:0002:c903:0000:0001", "InfiniBand", "1: DOWN", "2: Polling", "0x2651e848"},
	{"umad2", "mlx5_1", "1", "fec0:0000:0000:0001:0002:c903:0000:0002", "InfiniBand", "4: ACTIVE", "5: LinkUp", "0x2651e848"},
	{"umad10", "mlx5_2", "2", "fe80:0000:0000:0000:0002:c903:0000:0003", "InfiniBand", "2: INIT", "5: LinkUp", "0x2651ec48"},
	{"umad11", "smi3", "1", "fe80:0000:0000:0000:0002:c903:0000:0003", "InfiniBand", "2: INIT", "5: LinkUp", "0x2651e848"},
}

// fakeHost is a kernel with a device file per port: one end of a pair of
// sockets, whose other end is the test's.
type fakeHost struct {
	t    *testing.T
	root roots

	mu     sync.Mutex
	agents [][regSize]byte
	far    map[string]*os.File
	fail   error // Of the next registration.
}

func newFakeHost(t *testing.T, ports ...fakePort) *fakeHost {
	h := &fakeHost{t: t, root: roots{sys: t.TempDir(), dev: t.TempDir()}, far: map[string]*os.File{}}
	h.write("class/infiniband_mad/abi_version", "5\n")
	for _, p := range ports {
		h.write("class/infiniband_mad/"+p.umad+"/ibdev", p.dev+"\n")
		h.write("class/infiniband_mad/"+p.umad+"/port", p.port+"\n")
		ca := "class/infiniband/" + p.dev
		h.write(ca+"/node_guid", "0002:c903:0000:00ff\n")
		h.write(ca+"/node_type", "1: CA\n")
		for name, text := range map[string]string{
			"gids/0": p.gid, "link_layer": p.layer, "state": p.state, "phys_state": p.phys, "cap_mask": p.caps,
			"lid": "0x12", "sm_lid": "0x3", "lid_mask_count": "2", "sm_sl": "1", "pkeys/0": "0xffff", "pkeys/1": "0x8001", "pkeys/2": "0x0000",
		} {
			h.write(ca+"/ports/"+p.port+"/"+name, text+"\n")
		}
		if err := os.WriteFile(filepath.Join(h.root.dev, strings.Replace(p.umad, "umad", "issm", 1)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h *fakeHost) write(path, text string) {
	path = filepath.Join(h.root.sys, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *fakeHost) opener() opener { return opener{roots: h.root, open: h.open, ctl: h.ctl} }

func (h *fakeHost) open(path string) (*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	far := os.NewFile(uintptr(fds[1]), path)
	h.t.Cleanup(func() { far.Close() })
	h.far[filepath.Base(path)] = far
	return os.NewFile(uintptr(fds[0]), path), nil
}

func (h *fakeHost) ctl(_ *os.File, request uint, arg []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if request != ioctlRegisterAgent2 || len(arg) != 40 {
		return unix.ENOTTY
	}
	if h.fail != nil {
		return h.fail
	}
	h.agents = append(h.agents, [regSize]byte(arg))
	host.PutUint32(arg, uint32(100+len(h.agents)))
	return nil
}

func (h *fakeHost) port(o Options) (*Port, error) {
	p, err := h.opener().port(o)
	if err == nil {
		h.t.Cleanup(func() { p.Close() })
	}
	return p, err
}

func TestList(t *testing.T) {
	h := newFakeHost(t, fakePorts...)
	ports, err := h.root.list()
	if err != nil || len(ports) != 5 {
		t.Fatalf("%d ports, %v", len(ports), err)
	}
	if ports[3].Umad != "umad10" || ports[3].ISSM != "issm10" || ports[3].Port != 2 {
		t.Errorf("the fourth is %+v", ports[3])
	}
	p := ports[2]
	if p.Device != "mlx5_1" || p.GUID != 0x0002c90300000002 || p.GIDPrefix != 0xfec0000000000001 || p.LID != 0x12 || p.SMLID != 3 ||
		p.LMC != 2 || p.SMSL != 1 || p.State != ib.PortActive || p.Physical != mad.PhysLinkUp || p.NodeGUID != 0x0002c903000000ff ||
		len(p.PKeys) != 2 || p.PKeys[1] != 0x8001 || p.NodeType != mad.NodeCA {
		t.Errorf("the third is %+v", p)
	}
}

func TestListErrors(t *testing.T) {
	h := newFakeHost(t)
	h.write("class/infiniband_mad/abi_version", "6\n")
	if _, err := h.root.list(); err == nil || !strings.Contains(err.Error(), "ABI version 6") {
		t.Errorf("ABI 6: %v", err)
	}
	if _, err := (roots{sys: t.TempDir()}).list(); err == nil || !strings.Contains(err.Error(), "ib_umad") {
		t.Errorf("no class: %v", err)
	}
}

func TestChoice(t *testing.T) {
	h := newFakeHost(t, fakePorts...)
	for _, c := range []struct {
		o             Options
		smi, gsi, err string
	}{
		{Options{}, "umad2", "umad2", ""},
		{Options{GUID: 0x0002c90300000001}, "umad1", "umad1", ""},
		{Options{GUID: 0x0002c90300000003}, "umad11", "umad10", ""}, // Two planes of one port.
		{Options{Device: "smi3"}, "umad11", "umad11", ""},
		{Options{Device: "rxe0", Port: 1, Agents: []Agent{{Class: mad.ClassPerf}}}, "umad0", "umad0", ""},
		{Options{Device: "rxe0", Port: 2}, "", "", "no port of rxe0 2; there are: rxe0 port 1"},
		{Options{GUID: 5}, "", "", "no port with GUID 0000:0000:0000:0005"},
	} {
		p, err := h.port(c.o)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%+v: %v, want %q", c.o, err, c.err)
			}
			continue
		}
		if err != nil || p.smiInfo.Umad != c.smi || p.info.Umad != c.gsi {
			t.Errorf("%+v: %v, chose %s and %s, want %s and %s", c.o, err, p.smiInfo.Umad, p.info.Umad, c.smi, c.gsi)
		}
	}
}

// Who asks for subnet management of a RoCE port is told that there is none.
func TestNoSubnetManagementOnRoCE(t *testing.T) {
	conform.Row(t, "bug/64")
	only, mixed := newFakeHost(t, fakePorts[0]), newFakeHost(t, fakePorts...)
	for _, c := range []struct {
		h    *fakeHost
		o    Options
		says string
	}{
		{only, Options{}, "no InfiniBand port that is up; there are: rxe0 port 1"},
		{only, Options{Agents: Manager()}, "no InfiniBand port that is up; there are: rxe0 port 1"},
		{mixed, Options{Device: "rxe0", Agents: Manager()}, "rxe0 port 1 (Ethernet)"},
		{mixed, Options{GUID: 0x505400fffe123456}, "rxe0 port 1 (Ethernet)"},
	} {
		_, err := c.h.port(c.o)
		if !errors.Is(err, ErrNoSubnet) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "has no subnet manager and needs none") {
			t.Errorf("%+v: %v, want %q, and that there is no subnet manager", c.o, err, c.says)
		}
	}
	if len(only.agents)+len(mixed.agents) > 0 {
		t.Error("the kernel was asked")
	}
}

// The bytes of two registrations, as the kernel's header has them on x86-64.
func TestRegistrationBytes(t *testing.T) {
	if host.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the golden bytes are those of a little-endian host")
	}
	for _, c := range []struct {
		a    Agent
		want string
	}{
		{Agent{Class: mad.ClassSubnLID, Methods: []mad.Method{mad.MethodGet, mad.MethodSet, mad.MethodTrap}},
			"00000000 00000000 01 01 0000 00000000 2600000000000000 0000000000000000 00000000 00000000"},
		{Agent{Class: mad.ClassSubnAdm, Methods: []mad.Method{mad.MethodGet, mad.MethodGetTable, 0x7f}},
			"00000000 01000000 03 02 0000 01000000 0200040000000000 0000000000000080 00000000 01000000"},
		{Agent{Class: 0x30, OUI: 0x0002c9}, "00000000 01000000 30 01 0000 01000000 0000000000000000 0000000000000000 c9020000 01000000"},
	} {
		want, _ := hex.DecodeString(strings.ReplaceAll(c.want, " ", ""))
		if got := c.a.request(); !bytes.Equal(got[:], want) {
			t.Errorf("class 0x%02x:\n% x, want\n% x", uint8(c.a.Class), got, want)
		}
	}
}

func TestMessageBytes(t *testing.T) {
	p := &mad.Packet{Timeout: 1500 * time.Microsecond, Retries: 3, Addr: mad.Addr{
		LID: 0x1234, QPN: 1, SL: 5, PathBits: 2, PKeyIndex: 7,
		GRH: mad.GRH{Present: true, GID: ib.GID{15: 9}, GIDIndex: 1, HopLimit: 64, TrafficClass: 8, FlowLabel: 0xabcde},
	}}
	p.MAD().InitSA(mad.MethodGet, mad.AttrPathRecord, 3)
	var b [messageSize]byte
	putMessage(&b, p, 0x55)
	want := make([]byte, 64)
	host.PutUint32(want[0:], 0x55)
	host.PutUint32(want[8:], 1)
	host.PutUint32(want[12:], 3)
	binary.BigEndian.PutUint32(want[20:], 1)
	binary.BigEndian.PutUint32(want[24:], 0x80010000)
	binary.BigEndian.PutUint16(want[28:], 0x1234)
	copy(want[30:], []byte{5, 2, 1, 1, 64, 8})
	want[51] = 9
	binary.BigEndian.PutUint32(want[52:], 0xabcde)
	host.PutUint16(want[56:], 7)
	if !bytes.Equal(b[:64], want) || !bytes.Equal(b[64:], p.Data[:]) {
		t.Errorf("got\n% x, want\n% x", b[:64], want)
	}
	var q mad.Packet
	if err := parseMessage(b[:], &q); err != nil {
		t.Fatal(err)
	}
	p.Timeout, p.Retries, p.Addr.QKey = 0, 0, ib.QKeyGSI
	if q != *p {
		t.Errorf("read back as %+v, want %+v", q, *p)
	}
}

func TestParseMessage(t *testing.T) {
	p := &mad.Packet{Addr: mad.Direct}
	if err := p.MAD().InitSMP(mad.MethodGet, mad.AttrNodeInfo, 0, nil); err != nil {
		t.Fatal(err)
	}
	p.MAD().SetTID(42)
	var b [messageSize]byte
	putMessage(&b, p, 1)
	host.PutUint32(b[offStatus:], statusTimedOut)
	var q mad.Packet
	if err := parseMessage(b[:headerSize+24], &q); err != nil || !errors.Is(q.Err, mad.ErrTimeout) || q.Key() != 42 {
		t.Errorf("a request that timed out: %v, %v", &q, err)
	}
	host.PutUint32(b[offStatus:], 5)
	if err := parseMessage(b[:], &q); err == nil {
		t.Error("status 5 was taken")
	}
	host.PutUint32(b[offStatus:], 0)
	for _, n := range []int{0, 63, 64, 87, 88, 319} {
		if err := parseMessage(b[:n], &q); err == nil {
			t.Errorf("%d bytes were taken", n)
		}
	}
}

func FuzzParseMessage(f *testing.F) {
	f.Add(make([]byte, 88))
	f.Add(bytes.Repeat([]byte{1}, messageSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p mad.Packet
		if err := parseMessage(b, &p); err == nil {
			_ = p.String()
		}
	})
}

// A request goes to the agent of its class, and its answer and what others ask
// come back.
func TestSendAndReceive(t *testing.T) {
	h := newFakeHost(t, fakePorts...)
	p, err := h.port(Options{Agents: Manager()})
	if err != nil {
		t.Fatal(err)
	}
	if len(h.agents) != 4 || h.agents[2][regRMPP] != 1 || h.agents[0][regRMPP] != 0 {
		t.Errorf("%d agents: %x", len(h.agents), h.agents)
	}
	req := &mad.Packet{Addr: mad.Addr{LID: 3, QPN: 1}, Timeout: time.Second}
	req.MAD().InitSA(mad.MethodGet, mad.AttrNodeRecord, 0)
	req.MAD().SetTID(9)
	if err := p.Send(req); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 512)
	n, err := h.far["umad2"].Read(b)
	if err != nil || n != messageSize || host.Uint32(b) != 103 {
		t.Fatalf("the kernel got %d bytes for agent %d, %v", n, host.Uint32(b), err)
	}
	mad.MAD(b[headerSize:messageSize]).Respond(mad.StatusOK)
	if _, err := h.far["umad2"].Write(b[:n]); err != nil {
		t.Fatal(err)
	}
	if _, err := h.far["umad2"].Write([]byte("rubbish")); err != nil {
		t.Fatal(err)
	}
	mad.MAD(b[headerSize:messageSize]).SetMethod(mad.MethodGetTable)
	if _, err := h.far["umad2"].Write(b[:n]); err != nil {
		t.Fatal(err)
	}
	var ps [1]mad.Packet
	for _, want := range []mad.Method{mad.MethodGetResp, mad.MethodGetTable} {
		if _, err := p.Recv(ps[:]); err != nil || ps[0].MAD().Method() != want || ps[0].Key() != 9 {
			t.Errorf("got %v, %v, want method 0x%02x", &ps[0], err, want)
		}
	}
	if p.Bad() != 1 {
		t.Errorf("%d bad messages, want 1", p.Bad())
	}
	req.MAD().Init(mad.ClassCM, mad.MethodSend, 0, 0)
	if err := p.Send(req); err == nil || !strings.Contains(err.Error(), "class 0x07") {
		t.Errorf("a class that was not opened: %v", err)
	}
	done := make(chan error)
	go func() {
		_, err := p.Recv(ps[:])
		done <- err
	}()
	p.Close()
	if err := <-done; !errors.Is(err, mad.ErrClosed) {
		t.Errorf("Recv after Close: %v", err)
	}
	req.MAD().InitSA(mad.MethodGet, mad.AttrNodeRecord, 0)
	if err := p.Send(req); !errors.Is(err, mad.ErrClosed) {
		t.Errorf("Send after Close: %v", err)
	}
}

func TestSetSM(t *testing.T) {
	h := newFakeHost(t, fakePorts...)
	p, err := h.port(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.SetSM(true), p.SetSM(true)); err != nil || p.sm == nil {
		t.Fatalf("SetSM(true): %v", err)
	}
	f := p.sm
	if err := p.SetSM(false); err != nil || p.sm != nil {
		t.Fatalf("SetSM(false): %v", err)
	}
	if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Error("the issm file stayed open")
	}
	if err := os.Remove(filepath.Join(h.root.dev, "issm2")); err != nil {
		t.Fatal(err)
	}
	if err := p.SetSM(true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
}

// Each step of Open fails once; nothing stays open.
func TestOpenFails(t *testing.T) {
	h := newFakeHost(t, fakePorts...)
	before := openFiles(t)
	h.fail = unix.EPROTONOSUPPORT
	if _, err := h.port(Options{Device: "rxe0"}); !errors.Is(err, ErrNoSubnet) {
		t.Errorf("EPROTONOSUPPORT: %v", err)
	}
	h.fail = unix.EINVAL
	if _, err := h.port(Options{}); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("EINVAL: %v", err)
	}
	w := h.opener()
	w.open = func(path string) (*os.File, error) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: unix.EACCES}
	}
	if _, err := w.port(Options{}); err == nil || !strings.Contains(err.Error(), "run as root") {
		t.Errorf("EACCES: %v", err)
	}
	for _, f := range h.far {
		f.Close()
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d files were open before, %d after", before, after)
	}
}

func openFiles(t *testing.T) int {
	e, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(e)
}
