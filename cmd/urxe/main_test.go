package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urxe/urxe/cmd/urxe/internal/rig"
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/control"
	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/tests/owner"
	"github.com/urxe/urxe/verbs"
)

// safe is a buffer that may be looked at while a command writes.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// command runs a command line and returns what it wrote and its exit code.
func command(args ...string) (stdout, stderr string, code int) {
	var out, errOut safe
	code = run(args, &out, &errOut)
	return out.String(), errOut.String(), code
}

func TestExitCodes(t *testing.T) {
	damaged := filepath.Join(t.TempDir(), "damaged.pcap")
	if err := os.WriteFile(damaged, []byte("no capture at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		says string // in what goes to standard error; one line
	}{
		{"--help", 0, ""},
		{"pingpong", 0, ""},
		{"perf write", 0, ""},
		{"dance", 2, `unknown command or argument "dance"`},
		{"pingpong rc --waltz", 2, "unknown flag: --waltz"},
		{"pingpong rc a b", 2, "2 arguments: want at most one host"},
		{"pingpong rc -m 1000", 2, "want 256, 512, 1024, 2048 or 4096"},
		{"pingpong rc -n 0", 2, "--iters 0: want 1 to"},
		{"pingpong rc -s x", 2, "invalid argument"},
		{"pingpong rc -P", 2, "--prefetch needs --odp"},
		{"pingpong rc -j", 1, "doesn't support device memory"},
		{"pingpong uc -j", 2, "unknown shorthand flag"},
		{"pingpong srq -q 0", 2, "--num-qp 0: want 1 to 256"},
		{"pingpong srq -q 20 -r 19", 2, "--rx-depth 19: want at least one receive for each of 20 QPs"},
		{"pingpong srq -P", 2, "unknown shorthand flag"},
		{"pingpong ud -m 1024", 2, "unknown shorthand flag"},
		{"pingpong ud -s -1", 2, "--size -1: want 0 to"},
		{"pingpong rc -t", 1, "doesn't support completion timestamping"},
		{"pingpong rc -d no-such-dev0", 1, "no-such-dev0"},
		{"pingpong ud --link wet-string", 2, "--link wet-string: want auto, zerocopy, driver"},
		{"pingpong rc --link xsk_map", 2, "needs --xsk-map"},
		{"pingpong rc --link af_packet --xsk-map x", 2, "uses no --xsk-map"},
		{"pingpong uc --allow 10.0.0.0/33", 2, "want an address or a prefix"},
		{"perf write bw --allow 10.0.0.1,here", 2, `"here": want an address or a prefix`},
		{"perf read bw -q 1000", 2, "QPs 1000: want 1 to 256"},
		{"perf write lat -s 0", 2, "size 1 at least"},
		{"perf write lat -p 65536", 2, "--port 65536: want 1 to 65535"},
		{"perf send bw -x 256", 2, "--gid-index 256: want -1 to 255"},
		{"perf send bw -n 5 -D -1s", 2, "duration -1s and 5 iterations"},
		{"perf write bw -d no-such-dev0", 1, "no-such-dev0"},
		{"demo --link=wet-string", 2, "want af_xdp, af_packet or mem"},
		{"demo --mtu 1", 2, "want 256, 512, 1024, 2048 or 4096"},
		{"demo --link=mem --duration 0", 2, "--duration 0s: want more than 0"},
		{"decode", 2, "want one file"},
		{"decode /no/such/file", 1, "/no/such/file"},
		{"decode " + damaged, 1, "damaged.pcap"},
		{"pingpong rc --pkeys 0xffff,0x18001", 2, `"0x18001" is no P_Key: want a number of 16 bits`},
		{"pingpong ud --pkeys 0x8000", 2, "names no partition"},
		{"perf read lat --pkeys 1,0x8001,1", 2, "twice, at indices 0 and 2"},
		{"perf read lat --pkey-index 65536", 2, "pkey-index"},
		{"stats no-such-dev0", 1, "no urxe process holds no-such-dev0"},
		{"capture no-such-dev0", 1, "no urxe process holds no-such-dev0"},
		{"capture", 2, "want one interface"},
	} {
		_, stderr, code := command(strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(stderr, c.says) || c.code != 0 && strings.Count(stderr, "\n") != 1 {
			t.Errorf("urxe %s: exit code %d, want %d; want one line that says %q:\n%s", c.args, code, c.code, c.says, stderr)
		}
	}
}

func TestDemoJSON(t *testing.T) {
	stdout, stderr, code := command("demo", "--link=mem", "--json", "--duration=5ms")
	var r struct {
		Link       string
		Operations []struct{ Verified bool }
	}
	if err := json.Unmarshal([]byte(stdout), &r); code != 0 || err != nil || r.Link != "mem" || len(r.Operations) != 7 || !r.Operations[0].Verified {
		t.Errorf("exit code %d, %v\n%s%s", code, err, stdout, stderr)
	}
}

// A server of pingpong on one end of a veth pair, a client at the other; meanwhile the server's counters and packets.
func TestPingpongStatsAndCapture(t *testing.T) {
	nettest.Require(t)
	p := nettest.New(t, nettest.Config{})
	file := filepath.Join(t.TempDir(), "c.pcapng")
	var server, client, stats, captured safe
	in := func(end int, out *safe, args ...string) (code int) {
		if err := p.Ends[end].NS.Do(func() error { code = run(args, out, out); return nil }); err != nil {
			t.Fatal(err)
		}
		return code
	}
	name, host := p.Ends[0].Name, p.Ends[0].V4.String()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if code := in(0, &server, "pingpong", "rc", "-d", name, "-e", "-n", "50", "-s", "3000"); code != 0 {
			t.Errorf("server: exit code %d", code)
		}
	})
	for end := time.Now().Add(10 * time.Second); in(0, &stats, "stats", name) != 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the server doesn't come up: ", server.String())
		}
	}
	wg.Go(func() { // ends when the server does
		if code := in(0, &captured, "capture", name, "-w", file); code != 0 {
			t.Errorf("capture: exit code %d", code)
		}
	})
	for end := time.Now().Add(10 * time.Second); !begun(file); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the capture doesn't begin: ", captured.String())
		}
	}
	for i := 0; in(1, &client, "pingpong", "rc", "-d", p.Ends[1].Name, "-e", "-n", "50", "-s", "3000", host) != 0; i++ {
		if i == 100 {
			t.Fatal("the client fails: ", client.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
	wg.Wait()
	if !strings.Contains(server.String(), "50 iters in") || !strings.Contains(client.String(), "300000 bytes in") {
		t.Errorf("server: %s\nclient: %s", server.String(), client.String())
	}
	if !strings.Contains(stats.String(), name+": af_xdp, PORT_ACTIVE, MTU 1500, active path MTU 1024, ") {
		t.Errorf("stats: %s", stats.String())
	}
	if out, stderr, code := command("decode", file); code != 0 || !strings.Contains(out, "SEND") {
		t.Errorf("the capture: exit code %d\n%s%s\n%s", code, out, stderr, captured.String())
	}
}

// begun reports whether a capture has its header: from then on it has all packets.
func begun(file string) bool {
	f, err := os.Stat(file)
	return err == nil && f.Size() > 0
}

// A pingpong over each way that packets may go, with the flags that choose it: what the server says of its link, and
// urxe devices and stats of the process that holds it.
func TestPingpongOverEachLink(t *testing.T) {
	nettest.Require(t)
	for _, c := range []struct {
		flags   string // of the server; MAP is the path of the owner's map
		owner   bool   // another XDP program has the server's interface
		link    string
		says    string // by the server, or nothing
		devices string // by urxe devices
	}{
		{"--link auto", false, "af_xdp", "", "driver mode, copy"},
		{"--link driver", false, "af_xdp", "", "driver mode, copy"},
		{"--link generic", false, "af_xdp", "", "generic mode, copy"},
		{"--link xsk_map --xsk-map MAP", true, "af_xdp", "", "pinned XSKMAP"},
		{"--xsk-map MAP", true, "af_xdp", "", "pinned XSKMAP"},
		{"--link auto", true, "af_packet", "packets go by AF_PACKET, which is slower: ", "not better, as: driver mode, zero-copy, multi-buffer: xdp: veth0: attach program"},
		{"--link af_packet --allow 192.0.2.0/24,10.77.0.2", false, "af_packet", "", "packet socket"},
	} {
		t.Run(fmt.Sprintf("%s, owner %v", c.flags, c.owner), func(t *testing.T) {
			p := nettest.New(t, nettest.Config{})
			e := p.Ends[0]
			if c.owner {
				w, err := owner.Attach(e, owner.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				c.flags = strings.ReplaceAll(c.flags, "MAP", w.Path)
			}
			var server, client, devices, stats safe
			in := func(end int, out, errs *safe, args ...string) (code int) {
				if err := p.Ends[end].NS.Do(func() error { code = run(args, out, errs); return nil }); err != nil {
					t.Fatal(err)
				}
				return code
			}
			var errs safe
			var wg sync.WaitGroup
			defer wg.Wait()
			wg.Go(func() {
				args := []string{"pingpong", "rc", "-d", e.Name, "-e", "-n", "10", "-s", "5000"}
				if code := in(0, &server, &errs, append(args, strings.Fields(c.flags)...)...); code != 0 {
					t.Errorf("server: exit code %d: %s", code, errs.String())
				}
			})
			for end := time.Now().Add(10 * time.Second); in(0, &stats, &stats, "stats", e.Name) != 0; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the server doesn't come up: ", errs.String())
				}
			}
			in(0, &devices, &devices, "devices")
			for i := 0; in(1, &client, &client, "pingpong", "rc", "-d", "veth0", "-e", "-n", "10", "-s", "5000", e.V4.String()) != 0; i++ {
				if i == 100 {
					t.Fatal("the client fails: ", client.String())
				}
				time.Sleep(10 * time.Millisecond)
			}
			wg.Wait()
			if !strings.Contains(server.String(), "10 iters in") || !strings.Contains(stats.String(), "veth0: "+c.link+", PORT_ACTIVE") {
				t.Errorf("server: %s\nstats: %s", server.String(), stats.String())
			}
			if got := errs.String(); !strings.Contains(got, c.says) || c.says == "" && got != "" {
				t.Errorf("the server says %q, want %q", got, c.says)
			}
			if got := devices.String(); !strings.Contains(got, "over "+c.link) || !strings.Contains(got, c.devices) {
				t.Errorf("devices: %s\nwant %q", got, c.devices)
			}
		})
	}
}

func TestHeldInterface(t *testing.T) {
	nettest.Require(t)
	p := nettest.New(t, nettest.Config{})
	e := p.Ends[0]
	var out safe
	if err := e.NS.Do(func() error {
		d, err := rig.Open(e.Name, verbs.Options{PKeys: ib.PKeyTable{0xffff, 0x0022}})
		if err != nil {
			return err
		}
		defer d.Close()
		if code := run([]string{"pingpong", "rc", "-d", e.Name}, &out, &out); code != 1 || !strings.Contains(out.String(), "is held by process") {
			t.Errorf("exit code %d: %s", code, out.String())
		}
		var list safe
		if code := run([]string{"devices"}, &list, &list); code != 0 || !strings.Contains(list.String(), "held by a urxe process, with 0 QPs") ||
			!strings.Contains(list.String(), "P_Key 0: 0xffff\n    P_Key 1: 0x0022\n") {
			t.Errorf("exit code %d: %s", code, list.String())
		}
		wantJSON(t, e, d)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// wantJSON compares what --json prints of a device that is held with the device.
func wantJSON(t *testing.T, e *nettest.End, d *verbs.Device) {
	t.Helper()
	var stats []verbs.Stats
	var devices []deviceJSON
	for args, to := range map[string]any{"devices --json": &devices, "stats --json": &stats, "stats --json " + e.Name: &stats} {
		if out, errs, code := command(strings.Fields(args)...); code != 0 || json.Unmarshal([]byte(out), to) != nil {
			t.Errorf("%s: exit code %d: %s%s", args, code, out, errs)
		}
	}
	s := d.Stats()
	if len(stats) != 1 || stats[0].Rung != s.Rung || !slices.Equal(stats[0].GIDs, s.GIDs) || len(stats[0].Counters) != len(s.Counters) {
		t.Errorf("stats: %+v, want %+v", stats, s)
	}
	i := slices.IndexFunc(devices, func(x deviceJSON) bool { return x.Device == e.Name })
	if i < 0 {
		t.Fatalf("%s is not among the devices: %+v", e.Name, devices)
	}
	x := devices[i]
	v4 := slices.IndexFunc(x.GIDs, func(g gidJSON) bool { return g.GID == ib.GIDFromAddr(e.V4).String() })
	if v4 < 0 || x.GIDs[v4].Netdev != e.Name || d.GIDs()[x.GIDs[v4].Index] != ib.GIDFromAddr(e.V4) || x.NodeGUID != d.Query().NodeGUID.String() ||
		x.State != "ACTIVE" || x.MTU != 1500 || x.ActiveMTU != 1024 || !slices.Equal(x.PKeys, ib.PKeyTable{0xffff, 0x0022}) {
		t.Errorf("%+v", x)
	}
	if h := x.Holder; h == nil || h.Link != "af_xdp" || h.Rung != s.Rung || len(h.Reasons) != len(s.Reasons) {
		t.Errorf("holder %+v, want %+v", h, s)
	}
}

// A capture that is interrupted in the middle of traffic is whole.
func TestCaptureInterrupted(t *testing.T) {
	nettest.Require(t)
	p := nettest.New(t, nettest.Config{})
	e := p.Ends[0]
	ctx, end := context.WithCancel(t.Context())
	in := func(n int, ctx context.Context, args ...string) error {
		var out safe
		root := newRoot()
		root.SetArgs(args)
		root.SetOut(&out)
		root.SetErr(&out)
		return p.Ends[n].NS.Do(func() error { return root.ExecuteContext(ctx) })
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	wg.Go(func() { _ = in(0, ctx, "perf", "write", "bw", "-d", e.Name) })
	wg.Go(func() {
		for ctx.Err() == nil { // until the server is there, and then until the end
			_ = in(1, ctx, "perf", "write", "bw", "-d", p.Ends[1].Name, "-D", "1h", e.V4.String())
			time.Sleep(5 * time.Millisecond)
		}
	})
	file := filepath.Join(t.TempDir(), "c.pcapng")
	late := time.Now().Add(20 * time.Second)
	for full := 0; full < 3; {
		some, enough := context.WithTimeout(ctx, 100*time.Millisecond)
		err := in(0, some, "capture", e.Name, "-w", file)
		enough()
		if err == nil { // the server has the interface
			out, errs, code := command("decode", file)
			if code != 0 {
				t.Fatalf("exit code %d: %s", code, errs)
			}
			if strings.Contains(out, "RC RDMA WRITE") {
				full++
			}
		}
		if time.Now().After(late) {
			t.Fatalf("no traffic: %v", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A capture whose holder doesn't come to the end of it says that the end is missing.
func TestCaptureWithoutEnd(t *testing.T) {
	nettest.Require(t)
	e := nettest.New(t, nettest.Config{}).Ends[0]
	ctx, interrupt := context.WithCancel(t.Context())
	var h *control.Holder
	if err := e.NS.Do(func() (err error) { h, err = control.Hold(e.Name); return err }); err != nil {
		t.Fatal(err)
	}
	silent := make(chan struct{})
	defer h.Close()
	defer close(silent)
	h.Serve(map[string]control.Command{"capture": func(context.Context, io.Writer) error { interrupt(); <-silent; return nil }})
	root := newRoot()
	root.SetArgs([]string{"capture", e.Name, "-w", filepath.Join(t.TempDir(), "c.pcapng")})
	root.SetErr(io.Discard)
	err := e.NS.Do(func() error { return root.ExecuteContext(ctx) })
	if err == nil || !strings.Contains(err.Error(), "the end of the capture is missing") {
		t.Error(err)
	}
}

// Addresses that have no GID are told of.
func TestAddressesWithoutGID(t *testing.T) {
	var devices, stats bytes.Buffer
	printDevice(&devices, &verbs.DeviceInfo{Name: "eth0", NoGID: 7})
	printStats(&stats, &rocev2.Stats{Device: "eth0", NoGID: 7}, false)
	for _, s := range []string{devices.String(), stats.String()} {
		if !strings.Contains(s, "    7 more addresses have no GID: the table is full\n") {
			t.Errorf("%s", s)
		}
	}
}
