package xdp_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/tests/owner"
	"github.com/urxe/urxe/xdp"
)

func attachOwner(t testing.TB, e *nettest.End, o owner.Options) *owner.Owner {
	t.Helper()
	w, err := owner.Attach(e, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// newPinnedLab makes a pair whose end 1 belongs to another XDP program.
func newPinnedLab(t testing.TB, c nettest.Config, o owner.Options) (*lab, *owner.Owner) {
	t.Helper()
	l := &lab{Pair: nettest.New(t, c), t: t}
	w := attachOwner(t, l.Ends[1], o)
	l.open(0, few)
	mine := few
	mine.XSKMap = w.Path
	l.open(1, mine)
	return l, w
}

// eventually waits until the port's trouble holds all of these; none: it has none.
func (l *lab) untilTrouble(i int, says ...string) {
	l.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		got, ok := l.ports[i].Trouble(), true
		for _, s := range says {
			ok = ok && strings.Contains(got, s)
		}
		if ok && (len(says) > 0 || got == "") {
			return
		}
		if time.Now().After(end) {
			l.t.Fatalf("trouble %q, want %q", got, says)
		}
	}
}

// Packets come by another's program, in its mode, whole, and go.
func TestPinnedMap(t *testing.T) {
	for _, generic := range []bool{false, true} {
		for _, queues := range []int{1, 3} {
			t.Run(fmt.Sprintf("generic %v, %d queues", generic, queues), func(t *testing.T) {
				l, w := newPinnedLab(t, nettest.Config{MTU: 4200, Queues: queues}, owner.Options{Generic: generic})
				l.needMultiBuffer()
				info := l.ports[1].Info()
				want := map[bool]xdp.Mode{false: xdp.ModeDriver, true: xdp.ModeGeneric}[generic]
				if info.XSKMap != w.Path || info.Mode != want || info.Queues != queues || info.ProgramID == 0 || !strings.Contains(info.String(), w.Path) {
					t.Errorf("%+v", info)
				}
				for _, n := range []int{60, 1514, 3840, 3841, 4198} {
					for i := range 2 {
						l.arrives(i, l.frame(i, n))
					}
				}
				l.untilTrouble(1)
				if st, err := l.ports[1].ProgramStats(); err != nil || st != (xdp.ProgramStats{}) {
					t.Errorf("counters of another's program: %+v, %v", st, err)
				}
				// It goes, and the owner stays.
				if err := l.ports[1].Close(); err != nil {
					t.Fatal(err)
				}
				if !attached(t, l.Ends[1]) {
					t.Error("the owner's program is gone")
				}
				again := few
				again.XSKMap = w.Path
				l.open(1, again)
				l.arrives(0, l.frame(0, 1514))
			})
		}
	}
}

// Close takes out our own sockets and nobody else's.
func TestPinnedMapCloseLeavesOthers(t *testing.T) {
	l := &lab{Pair: nettest.New(t, nettest.Config{Queues: 2}), t: t}
	w := attachOwner(t, l.Ends[1], owner.Options{})
	o := few
	o.XSKMap = w.Path
	l.open(1, o)
	s := l.ports[1].Sockets()
	full := func(q int) bool {
		t.Helper()
		// Another's socket in the same place is refused: what is there can't be read.
		err := w.Map().Update(uint32(q), uint32(s[1-q].FD()), ebpf.UpdateNoExist)
		if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
			t.Fatal(err)
		}
		return err != nil
	}
	if !full(0) || !full(1) {
		t.Fatal("the sockets are not in the map")
	}
	// The owner puts the socket of queue 0 in the place of that of queue 1.
	if err := w.Map().Update(uint32(1), uint32(s[0].FD()), ebpf.UpdateAny); err != nil {
		t.Fatal(err)
	}
	l.untilTrouble(1, "entry 1", "another socket")
	if err := s[1].Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Map().Update(uint32(1), uint32(s[0].FD()), ebpf.UpdateNoExist); err != nil {
		t.Errorf("the close of one socket took another out: %v", err)
	}
	l.untilTrouble(1) // a closed socket isn't missed
	if err := l.ports[1].Close(); err != nil {
		t.Fatal(err)
	}
	l.open(1, o) // both places are free
}

// An owner that takes entries out, unpins its map, starts anew, and goes.
func TestPinnedMapOwnerChanges(t *testing.T) {
	var logged []string
	l := &lab{Pair: nettest.New(t, nettest.Config{}), t: t}
	w := attachOwner(t, l.Ends[1], owner.Options{})
	l.open(0, few)
	o := few
	o.XSKMap = w.Path
	lines := make(chan string, 100)
	o.Logf = func(f string, a ...any) { lines <- fmt.Sprintf(f, a...) }
	l.open(1, o)
	l.arrives(0, l.frame(0, 100))
	comes := func() {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); ; {
			send(t, l.ports[0].Sockets()[0], l.frame(0, 100))
			if got, _ := receive(t, l.ports[1].Sockets()[0], 20*time.Millisecond); got != nil {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("nothing comes: %q", l.ports[1].Trouble())
			}
		}
	}
	if err := w.Map().Delete(uint32(0)); err != nil {
		t.Fatal(err)
	}
	comes()
	if err := w.Unpin(); err != nil {
		t.Fatal(err)
	}
	l.untilTrouble(1, "no map is pinned at", w.Path)
	comes() // as before
	if err := w.Pin(); err != nil {
		t.Fatal(err)
	}
	l.untilTrouble(1)
	if err := w.Replace(l.Ends[1].V4.As16()); err != nil {
		t.Fatal(err)
	}
	comes()
	l.untilTrouble(1)
	// In the map's place is one of another kind.
	if err := w.Unpin(); err != nil {
		t.Fatal(err)
	}
	hash, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer hash.Close()
	if err := hash.Pin(w.Path); err != nil {
		t.Fatal(err)
	}
	l.untilTrouble(1, "Hash", "not an XSKMAP")
	if err := hash.Unpin(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l.untilTrouble(1, "no map is pinned", "no XDP program is attached")
	for len(lines) > 0 {
		logged = append(logged, <-lines)
	}
	all := strings.Join(logged, "\n")
	for _, s := range []string{"was replaced", "works again", "no map is pinned"} {
		if !strings.Contains(all, s) {
			t.Errorf("not logged: %q in\n%s", s, all)
		}
	}
}

// A map that is pinned before its owner attaches is no error: it may come later. Our
// own program would keep it out.
func TestPinnedMapBeforeItsOwner(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	w := attachOwner(t, p.Ends[1], owner.Options{Detached: true})
	port, err := tryOpen(p.Ends[1], xdp.Options{XSKMap: w.Path})
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	if attached(t, p.Ends[1]) {
		t.Error("a program was attached")
	}
	if s := port.Trouble(); !strings.Contains(s, "no XDP program is attached") {
		t.Errorf("trouble %q", s)
	}
}

// What is no map for us is an error that says why.
func TestPinnedMapRefused(t *testing.T) {
	p := nettest.New(t, nettest.Config{Queues: 4})
	e := p.Ends[1]
	w := attachOwner(t, e, owner.Options{Generic: true})
	small := attachOwner(t, p.Ends[0], owner.Options{Entries: 3})
	hash, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer hash.Close()
	other := filepath.Join(filepath.Dir(w.Path), "other")
	if err := hash.Pin(other); err != nil {
		t.Fatal(err)
	}
	plainFile := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(plainFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := nettest.CountResources(t)
	for _, c := range []struct {
		o    xdp.Options
		says []string
	}{
		{xdp.Options{XSKMap: w.Path + "x"}, []string{"no map is pinned at " + w.Path + "x"}},
		{xdp.Options{XSKMap: other}, []string{"type Hash", "not an XSKMAP"}},
		{xdp.Options{XSKMap: small.Path}, []string{"3 entries", "4 queues"}},
		{xdp.Options{XSKMap: plainFile}, []string{plainFile}},
		{xdp.Options{XSKMap: w.Path, Mode: xdp.ModeDriver}, []string{"generic mode"}},
	} {
		port, err := tryOpen(e, c.o)
		if err == nil {
			port.Close()
			t.Errorf("%+v was accepted", c.o)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%+v: %v; want %q", c.o, err, s)
			}
		}
	}
	if r := nettest.CountResources(t); r != before {
		t.Errorf("%+v after, %+v before", r, before)
	}
	// An entry that is another's.
	taken, err := tryOpen(p.Ends[0], xdp.Options{XSKMap: attachOwner(t, e2(t), owner.Options{}).Path, RxFrames: 64, TxFrames: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := w.Map().Update(uint32(2), uint32(taken.Sockets()[2].FD()), ebpf.UpdateNoExist); err != nil {
		t.Fatal(err)
	}
	_, err = tryOpen(e, xdp.Options{XSKMap: w.Path, RxFrames: 64, TxFrames: 64})
	wantErr(t, err, xdp.ErrInUse)
	if !strings.Contains(err.Error(), "entry 2") {
		t.Error(err)
	}
}

// e2 is an end of a pair of its own.
func e2(t *testing.T) *nettest.End { return nettest.New(t, nettest.Config{Queues: 4}).Ends[0] }

// Every step of an Open with a map fails once.
func TestPinnedMapEachStepUndoesTheOthers(t *testing.T) {
	p := nettest.New(t, nettest.Config{Queues: 2})
	w := attachOwner(t, p.Ends[1], owner.Options{})
	o := few
	o.XSKMap, o.SingleBuffer, o.Copy = w.Path, true, xdp.CopyOnly
	var ops []string
	xdp.SetFailStep(func(op string) error { ops = append(ops, op); return nil })
	defer xdp.SetFailStep(nil)
	port, err := tryOpen(p.Ends[1], o)
	if err != nil {
		t.Fatal(err)
	}
	port.Close()
	before := nettest.CountResources(t)
	for n, op := range ops {
		calls, boom := 0, errors.New("made to fail")
		xdp.SetFailStep(func(string) error {
			if calls++; calls == n+1 {
				return boom
			}
			return nil
		})
		if _, err := tryOpen(p.Ends[1], o); !errors.Is(err, boom) {
			t.Errorf("step %d, %q: error %v", n, op, err)
		}
		if r := nettest.CountResources(t); r != before {
			t.Fatalf("step %d, %q: %+v after, %+v before", n, op, r, before)
		}
		if !attached(t, p.Ends[1]) {
			t.Fatalf("step %d, %q: the owner's program is gone", n, op)
		}
	}
}

// Attaching nothing needs less than attaching.
func TestPinnedMapPrivileges(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	e := p.Ends[1]
	w := attachOwner(t, e, owner.Options{})
	for _, c := range []struct {
		caps []int
		ok   bool
	}{
		{[]int{unix.CAP_NET_RAW, unix.CAP_IPC_LOCK, unix.CAP_BPF, unix.CAP_NET_ADMIN}, true},
		{[]int{unix.CAP_IPC_LOCK, unix.CAP_BPF, unix.CAP_NET_ADMIN}, false},
	} {
		err := e.NS.WithCaps(c.caps, func() error {
			port, err := xdp.Open(e.Name, xdp.Options{XSKMap: w.Path})
			if err != nil {
				return err
			}
			return port.Close()
		})
		if c.ok && err != nil {
			t.Error(err)
		}
		if !c.ok && (!errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_NET_RAW")) {
			t.Errorf("error %v", err)
		}
	}
	// And with the least.
	err := e.NS.WithCaps([]int{unix.CAP_NET_RAW, unix.CAP_IPC_LOCK}, func() error {
		port, err := xdp.Open(e.Name, xdp.Options{XSKMap: w.Path})
		if err != nil {
			return err
		}
		return port.Close()
	})
	if err != nil && !errors.Is(err, unix.EPERM) { // older kernels may want CAP_BPF for a map
		t.Errorf("with CAP_NET_RAW and CAP_IPC_LOCK: %v", err)
	}
}
