package mem

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/nettest"
)

// modes are the two ways of calling the kernel.
var modes = map[string]time.Duration{"guarded": 10 * time.Second, "direct": 0}

func eachMode(t *testing.T, f func(t *testing.T, b *Batch)) {
	for name, limit := range modes {
		t.Run(name, func(t *testing.T) {
			b := NewBatch(256)
			b.Guard(limit)
			defer b.Close()
			f(t, b)
		})
	}
}

func TestRegisterWhatIsntMapped(t *testing.T) {
	c := startChild(t)
	c.Tell("unmap %d %d", 2*pageSize, pageSize)
	c.Tell("protect %d %d %d", 4*pageSize, pageSize, unix.PROT_READ)
	p := c.process()
	for _, x := range []struct {
		name     string
		page, n  int
		acc      Access
		complain string
	}{
		{"mapped", 0, 2, allAccess, ""},
		{"over a hole", 1, 3, 0, "nothing is mapped"},
		{"into a hole", 1, 2, 0, "nothing is mapped"},
		{"read-only to read", 3, 3, RemoteRead, ""},
		{"read-only to write", 3, 2, LocalWrite, "r--p"},
	} {
		_, err := new(Table).Register(new(PD), p, c.addr+uint64(x.page*pageSize), 0, uint64(x.n*pageSize), x.acc)
		switch {
		case x.complain == "" && err != nil:
			t.Errorf("%s: %v", x.name, err)
		case x.complain != "" && (err == nil || !strings.Contains(err.Error(), x.complain)):
			t.Errorf("%s: error %v, want one with %q", x.name, err, x.complain)
		}
	}
}

func TestProcessGone(t *testing.T) {
	eachMode(t, func(t *testing.T, b *Batch) {
		gone, alive := startChild(t), startChild(t)
		var tab Table
		pd, p := new(PD), gone.process()
		mr := register(t, &tab, pd, p, gone.addr, 0, uint64(pageSize), allAccess)
		mr2 := register(t, &tab, pd, alive.process(), alive.addr, 0, uint64(pageSize), allAccess)
		var r1, r2, r3 recorder
		for i := range uint64(3) {
			add(t, b, &r1, Scatter, mr, i, []byte{1})
			add(t, b, &r2, Scatter, mr, i, []byte{1})
			add(t, b, &r3, Scatter, mr2, i, []byte{byte(i + 1)})
		}
		gone.Kill()
		b.Run()
		for _, r := range []*recorder{&r1, &r2} {
			if d := cmp.Diff([]Status{Fault, Discarded, Discarded}, r.statuses()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		}
		if !p.Dead() {
			t.Error("the process isn't known to be dead")
		}
		if d := cmp.Diff([]Status{OK, OK, OK}, r3.statuses()); d != "" {
			t.Errorf("other process (-want +got):\n%s", d)
		}
		if got := alive.bytes(0, 4); !bytes.Equal(got, []byte{1, 2, 3, 0}) {
			t.Errorf("other process got %v", got)
		}
		if _, err := tab.Register(pd, p, gone.addr, 0, 1, 0); err == nil {
			t.Error("memory of a dead process was registered")
		}
	})
}

// A zombie keeps its pid but has no memory.
func TestProcessZombie(t *testing.T) {
	eachMode(t, func(t *testing.T, b *Batch) {
		c := startChild(t)
		var tab Table
		p := c.process()
		mr := register(t, &tab, new(PD), p, c.addr, 0, uint64(pageSize), allAccess)
		c.Cmd.Process.Kill()
		awaitZombie(t, c.Cmd.Process.Pid)
		var r recorder
		add(t, b, &r, Scatter, mr, 0, []byte{1})
		add(t, b, &r, Scatter, mr, 0, []byte{1})
		b.Run()
		if d := cmp.Diff([]Status{Fault, Discarded}, r.statuses()); d != "" || !p.Dead() {
			t.Errorf("dead: %v (-want +got):\n%s", p.Dead(), d)
		}
	})
}

// After an execve the pid is the same and the memory another.
func TestProcessExecutesAnotherProgram(t *testing.T) {
	eachMode(t, func(t *testing.T, b *Batch) {
		c := startChild(t)
		var tab Table
		p := c.process()
		mr := register(t, &tab, new(PD), p, c.addr, 0, uint64(pageSize), allAccess)
		fmt.Fprintln(c.In, "exec")
		c.greet()
		var r recorder
		add(t, b, &r, Gather, mr, 0, []byte{1})
		add(t, b, &r, Nop, nil, 0, nil)
		b.Run()
		if d := cmp.Diff([]Status{Fault, Discarded}, r.statuses()); d != "" || !p.Dead() {
			t.Errorf("dead: %v (-want +got):\n%s", p.Dead(), d)
		}
		mr = register(t, &tab, new(PD), c.process(), c.addr, 0, uint64(pageSize), allAccess)
		add(t, b, &r, Gather, mr, 0, []byte{1})
		b.Run()
		if r.ops[2].Status != OK {
			t.Error("the new program's memory isn't accessible either")
		}
	})
}

func awaitZombie(t *testing.T, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10000); n != 1 {
		t.Fatalf("process %d doesn't die: %v", pid, err)
	}
}

func TestDeregisteredAndAbandoned(t *testing.T) {
	eachMode(t, func(t *testing.T, b *Batch) {
		c := startChild(t)
		var tab Table
		pd, p := new(PD), c.process()
		gone := register(t, &tab, pd, p, c.addr, 0, uint64(pageSize), allAccess)
		mr := register(t, &tab, pd, p, c.addr, 0, uint64(pageSize), allAccess)
		var r1, r2 recorder
		add(t, b, &r1, Scatter, mr, 0, []byte{1})
		add(t, b, &r2, Scatter, mr, 1, []byte{2})
		add(t, b, &r1, Scatter, gone, 2, []byte{3})
		add(t, b, &r1, Scatter, mr, 3, []byte{4})
		add(t, b, &r2, Scatter, mr, 4, []byte{5})
		tab.Deregister(gone)
		b.Run()
		if d := cmp.Diff([]Status{OK, Fault, Discarded}, r1.statuses()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if d := cmp.Diff([]Status{OK, OK}, r2.statuses()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if got := c.bytes(0, 5); !bytes.Equal(got, []byte{1, 2, 0, 0, 5}) {
			t.Errorf("memory is %v", got)
		}
		p.Abandon()
		var r3 recorder
		add(t, b, &r3, Gather, mr, 0, make([]byte, 1))
		add(t, b, &r3, Nop, nil, 0, nil)
		b.Run()
		if d := cmp.Diff([]Status{Fault, Discarded}, r3.statuses()); d != "" {
			t.Errorf("abandoned (-want +got):\n%s", d)
		}
	})
}

func TestNewProcessFD(t *testing.T) {
	c := startChild(t)
	fd, err := unix.PidfdOpen(c.Cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	p, err := NewProcessFD(fd)
	if err != nil || p.PID() != c.Cmd.Process.Pid {
		t.Fatalf("NewProcessFD = %v, %v", p, err)
	}
	p.Close()
	c.Kill()
	if _, err := NewProcessFD(fd); err == nil {
		t.Error("NewProcessFD of a dead process succeeds")
	}
	if _, err := NewProcess(c.Cmd.Process.Pid); err == nil {
		t.Error("NewProcess of a dead process succeeds")
	}
	if _, err := NewProcessFD(0); err == nil {
		t.Error("NewProcessFD of something else succeeds")
	}
}

func TestNewProcessWithoutPermission(t *testing.T) {
	if os.Getuid() != 0 {
		nettest.SkipOrFail(t, "root, to become another user")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleEnv+"=stranger")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"operation not permitted", "CAP_SYS_PTRACE"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("error %q lacks %q", out, want)
		}
	}
}
