package netns

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/control"
	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/verbs"
)

// childEnv tells a child process what to do; see child.
const childEnv = "URXE_NETNS_CHILD"

// remote is what two processes tell each other to be connected.
type remote struct {
	Endpoint verbs.Endpoint
	Addr     uint64
	RKey     uint32
}

// child is a process that opens the interface of its namespace, which it has as
// descriptor 3, connects to its parent and WRITEs for ever; told to "panic", it
// panics on a line of input.
func child(job string) {
	runtime.LockOSThread()
	if err := unix.Setns(3, unix.CLONE_NEWNET); err != nil {
		panic(err)
	}
	d := must(verbs.Open("veth0", verbs.Options{}))
	defer d.Close()
	pd, cq := must(d.AllocPD()), must(d.CreateCQ(256, nil))
	mr := must(pd.RegMR(make([]byte, 1<<16), allRights))
	q := must(pd.CreateQP(verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq}))
	in := bufio.NewReader(os.Stdin)
	const gid = 1 // IPv4
	if err := json.NewEncoder(os.Stdout).Encode(remote{must(q.Endpoint(gid)), mr.IOVA(), mr.RKey()}); err != nil {
		panic(err)
	}
	var to remote
	if err := json.Unmarshal([]byte(must(in.ReadString('\n'))), &to); err != nil {
		panic(err)
	}
	if err := q.Connect(to.Endpoint, verbs.ConnectOptions{GIDIndex: gid}); err != nil {
		panic(err)
	}
	go func() {
		if _, err := in.ReadString('\n'); err == nil && job == "panic" {
			panic("as told")
		}
	}()
	wcs := make([]verbs.WC, 64)
	for {
		for {
			if _, err := q.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Flags: verbs.Signaled, SGEs: []verbs.SGE{mr.SGE(0, 5000)},
				RemoteAddr: to.Addr, RKey: to.RKey}); err != nil {
				break // the queue is full
			}
		}
		for _, wc := range wcs[:cq.Poll(wcs)] {
			if err := wc.Err(); err != nil {
				panic(err)
			}
		}
	}
}

// family is a child process and how to talk to it.
type family struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startChild starts a child in an end's namespace.
func startChild(t testing.TB, e *nettest.End, job string) *family {
	t.Helper()
	ns, err := os.Open(e.NS.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	f := &family{cmd: exec.Command(os.Args[0])}
	f.cmd.Env = append(os.Environ(), childEnv+"="+job)
	f.cmd.ExtraFiles = []*os.File{ns}
	f.cmd.Stderr = io.Discard // its panic
	out, err := f.cmd.StdoutPipe()
	f.in = must(f.cmd.StdinPipe())
	if err = errors.Join(err, f.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	f.out = bufio.NewReader(out)
	t.Cleanup(func() {
		_ = f.cmd.Process.Kill() // most often it has ended
		_ = f.cmd.Wait()
	})
	return f
}

// meet connects a side with the child's QP.
func (f *family) meet(t testing.TB, s *side, child *nettest.End) {
	t.Helper()
	var r remote
	line, err := f.out.ReadString('\n')
	if err = errors.Join(err, json.Unmarshal([]byte(line), &r)); err != nil {
		t.Fatalf("the child said %q: %v", line, err)
	}
	index := gidIndex(s.dev, s.addr)
	mine := remote{must(s.qp.Endpoint(index)), s.mr.IOVA(), s.mr.RKey()}
	if r.Endpoint.GID != ib.GIDFromAddr(child.V4) {
		t.Fatalf("the child's GID is %v", r.Endpoint.GID)
	}
	if err := s.qp.Connect(r.Endpoint, verbs.ConnectOptions{GIDIndex: index, Access: verbs.RemoteWrite}); err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(f.in).Encode(mine); err != nil {
		t.Fatal(err)
	}
}

// bpfID is something in the kernel that BPF numbers.
type bpfID struct {
	kind string
	id   uint32
}

var bpfIDLine = regexp.MustCompile(`(?m)^(link|prog|map)_id:\s*(\d+)$`)

// bpfHeldBy lists the links, programs and maps that a process holds.
func bpfHeldBy(t testing.TB, pid int) (ids []bpfID) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := os.ReadFile(f)
		if err != nil {
			continue // closed meanwhile
		}
		for _, m := range bpfIDLine.FindAllStringSubmatch(string(info), -1) {
			n, _ := strconv.Atoi(m[2])
			if id := (bpfID{m[1], uint32(n)}); !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// exists reports whether the kernel still has it.
func (b bpfID) exists() bool {
	var c io.Closer
	var err error
	switch b.kind {
	case "link":
		c, err = link.NewFromID(link.ID(b.id))
	case "prog":
		c, err = ebpf.NewProgramFromID(ebpf.ProgramID(b.id))
	default:
		c, err = ebpf.NewMapFromID(ebpf.MapID(b.id))
	}
	if err == nil {
		c.Close()
	}
	return !errors.Is(err, fs.ErrNotExist)
}

// wantGone waits until the kernel has none of the BPF objects any more.
func wantGone(t testing.TB, ids []bpfID) {
	t.Helper()
	for _, id := range ids {
		eventually(t, fmt.Sprintf("%v gone", id), func() bool { return !id.exists() })
	}
}

// pinned lists what is pinned in the BPF file system.
func pinned() (paths []string) {
	_ = filepath.WalkDir("/sys/fs/bpf", func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			paths = append(paths, path)
		}
		return nil
	})
	return paths
}

// However a process ends that has a device open and in use, nothing stays that
// stops the next: no program on the interface, no BPF object, pinned or not, no
// name held, no socket on the queue.
func TestProcessEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*family) error
	}{
		{"interrupt", func(f *family) error { return f.cmd.Process.Signal(os.Interrupt) }},
		{"panic", func(f *family) error { _, err := io.WriteString(f.in, "now\n"); return err }},
		{"kill", func(f *family) error { return f.cmd.Process.Kill() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := nettest.New(t, nettest.Config{})
			d := open(t, p.Ends[0])
			s := newSide(d, 1<<16, p.Ends[0].V4)
			pins := pinned()
			f := startChild(t, p.Ends[1], c.name)
			f.meet(t, s, p.Ends[1])
			eventually(t, "the child's packets", func() bool { return d.Stats().Counters["rcvd_pkts"] > 1000 })
			held := bpfHeldBy(t, f.cmd.Process.Pid)
			if len(held) < 3 || !hasProgram(t, p.Ends[1]) {
				t.Fatalf("the child holds %v", held)
			}
			if err := c.end(f); err != nil {
				t.Fatal(err)
			}
			if err := f.cmd.Wait(); err == nil {
				t.Error("the child ended as if nothing had happened")
			}
			// At once: this is what the next process does.
			next := open(t, p.Ends[1])
			a, b := newSides(t, p, [2]*verbs.Device{d, next}, 1<<16, verbs.ConnectOptions{})
			everyOperation(t, a, b, 5001, 1, nil)
			wantGone(t, held)
			if now := pinned(); !slices.Equal(now, pins) {
				t.Errorf("pinned before: %v; now: %v", pins, now)
			}
		})
	}
}

// hasProgram reports whether an interface has an XDP program.
func hasProgram(t testing.TB, e *nettest.End) (has bool) {
	t.Helper()
	onLink(t, e, func(l netlink.Link) error {
		has = l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached
		return nil
	})
	return has
}

// A second opener is told who holds the interface.
func TestSecondOpener(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	e := p.Ends[1]
	f := startChild(t, e, "hold")
	if _, err := f.out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	second := func() error {
		return e.NS.Do(func() error {
			d, err := verbs.Open(e.Name, verbs.Options{})
			if err == nil {
				d.Close()
			}
			return err
		})
	}
	err := second()
	if !errors.Is(err, control.ErrHeld) || !strings.Contains(err.Error(), fmt.Sprintf("process %d ", f.cmd.Process.Pid)) ||
		!strings.Contains(err.Error(), os.Args[0]) {
		t.Errorf("a second opener gets %v; the holder is process %d, %s", err, f.cmd.Process.Pid, os.Args[0])
	}
	if err := f.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = f.cmd.Wait() // killed
	if err := second(); err != nil {
		t.Errorf("after the holder's end: %v", err)
	}
}

// Close gives back all that Open took, and what was made since.
func TestCloseLeavesNothing(t *testing.T) {
	p := nettest.New(t, nettest.Config{Queues: 2})
	cycle := func() {
		devs := [2]*verbs.Device{open(t, p.Ends[0]), open(t, p.Ends[1])}
		a, b := newSide(devs[0], chunks*chunk, p.Ends[0].V4), newSide(devs[1], chunks*chunk, p.Ends[1].V4)
		l := loaded(t, a, b, verbs.ConnectOptions{})
		c := startCapture(t, p.Ends[0], devs[0])
		l.progresses(t, 10)
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		for _, d := range devs {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
		<-c.ended
		c.r.Close()
	}
	cycle() // what is made once and kept
	before, held, size := takeStock(t), bpfHeldBy(t, os.Getpid()), addressSpace(t)
	const cycles = 10
	for range cycles {
		cycle()
	}
	before.compare(t)
	if now := bpfHeldBy(t, os.Getpid()); len(now) > len(held) {
		t.Errorf("BPF objects held before: %v; now: %v", held, now)
	}
	// A UMEM is of no kind that one sees, and has 24 MiB: there were four a cycle.
	if now := addressSpace(t); now > size+2*cycles*24<<20 {
		t.Errorf("the address space grew from %d to %d MiB in %d cycles", size>>20, now>>20, cycles)
	}
	for _, e := range p.Ends {
		if hasProgram(t, e) {
			t.Error("a program is still on the interface")
		}
	}
}

// addressSpace returns the size of this process's address space in bytes.
func addressSpace(t testing.TB) int {
	t.Helper()
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(statm))[0])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// The demo, ended in the middle, leaves nothing, and runs again.
func TestDemoInterrupted(t *testing.T) {
	nettest.Require(t)
	urxe := filepath.Join(t.TempDir(), "urxe")
	if out, err := exec.Command("go", "build", "-o", urxe, "github.com/urxe/urxe/cmd/urxe").CombinedOutput(); err != nil {
		t.Fatalf("build urxe: %v: %s", err, out)
	}
	for _, s := range []os.Signal{os.Interrupt, os.Kill} {
		t.Run(s.String(), func(t *testing.T) {
			interfaces := interfaceNames(t)
			named, _ := filepath.Glob("/run/netns/*")
			cmd := exec.Command(urxe, "demo", "--duration", "1m")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			var held []bpfID
			eventually(t, "the demo's two programs", func() bool {
				held = bpfHeldBy(t, cmd.Process.Pid)
				return count(held, "link") == 2
			})
			time.Sleep(100 * time.Millisecond) // into its traffic
			if err := cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if err := cmd.Wait(); err == nil {
				t.Error("the demo says that it succeeded")
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("the demo ended %v after the signal", took)
			}
			// Its namespaces have no name: they are gone when their interfaces are.
			wantGone(t, held)
			if now := interfaceNames(t); !slices.Equal(now, interfaces) {
				t.Errorf("interfaces before: %v; now: %v", interfaces, now)
			}
			if now, _ := filepath.Glob("/run/netns/*"); !slices.Equal(now, named) {
				t.Errorf("named namespaces before: %v; now: %v", named, now)
			}
		})
	}
	out, err := exec.Command(urxe, "demo", "--duration", "10ms", "--json").Output()
	var r struct{ Link string }
	if err = errors.Join(err, json.Unmarshal(out, &r)); err != nil || r.Link != "af_xdp" {
		t.Errorf("the demo after that: %v: %s", err, out)
	}
}

func count(ids []bpfID, kind string) (n int) {
	for _, id := range ids {
		if id.kind == kind {
			n++
		}
	}
	return n
}

func interfaceNames(t testing.TB) (names []string) {
	t.Helper()
	list, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list {
		names = append(names, l.Attrs().Name)
	}
	slices.Sort(names)
	return names
}
