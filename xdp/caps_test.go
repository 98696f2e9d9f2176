package xdp_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/xdp"
)

// Each lacking privilege is an error that names what is missing, and once, not
// for every rung of the ladder.
func TestMissingPrivileges(t *testing.T) {
	const bpf, admin, raw, lock = unix.CAP_BPF, unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_IPC_LOCK
	p := nettest.New(t, nettest.Config{})
	// Package ebpf keeps what it finds out about the kernel for the life of the
	// process: not from a thread without privileges.
	if port, err := tryOpen(p.Ends[0], few); err != nil {
		t.Fatal(err)
	} else {
		port.Close()
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		t.Fatal(err)
	}
	small := limit
	small.Cur = 1 << 20
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &small); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit)
	before := nettest.CountResources(t)
	for _, c := range []struct {
		name  string
		caps  []int
		op    string
		errno unix.Errno
		says  []string
	}{
		{"none", nil, "load program", unix.EPERM, []string{"CAP_BPF", "CAP_NET_ADMIN"}},
		{"no CAP_NET_ADMIN", []int{bpf, raw, lock}, "load program", unix.EPERM, []string{"CAP_NET_ADMIN"}},
		{"no CAP_BPF", []int{admin, raw, lock}, "load program", unix.EPERM, []string{"CAP_BPF"}},
		{"no CAP_NET_RAW", []int{bpf, admin, lock}, "open socket", unix.EPERM, []string{"CAP_NET_RAW"}},
		{"no CAP_IPC_LOCK", []int{bpf, admin, raw}, "register UMEM", unix.ENOBUFS, []string{"1024 KiB", "CAP_IPC_LOCK", "ulimit -l"}},
		{"all", []int{bpf, admin, raw, lock}, "", 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var port *xdp.Port
			err := p.Ends[0].NS.WithCaps(c.caps, func() (err error) { port, err = xdp.Open("veth0", xdp.Options{}); return err })
			if c.op == "" {
				if err != nil {
					t.Fatal(err)
				}
				port.Close()
				return
			}
			wantErr(t, err, c.errno)
			var e *xdp.Error
			if !errors.As(err, &e) || e.Op != c.op {
				t.Errorf("error %v, want one of %q", err, c.op)
			}
			for _, s := range c.says {
				if strings.Count(err.Error(), s) != 1 {
					t.Errorf("the error should say %q once: %v", s, err)
				}
			}
			if strings.Contains(err.Error(), "CAP_BPF") && !strings.Contains(strings.Join(c.says, " "), "CAP_BPF") {
				t.Errorf("it has CAP_BPF: %v", err)
			}
			if r := nettest.CountResources(t); r != before {
				t.Errorf("%+v after, %+v before", r, before)
			}
		})
	}
}
