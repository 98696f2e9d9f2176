package xdp_test

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/nettest"
)

// attachForeign attaches a program that passes everything, and is not ours, by a
// bpf_link or by netlink as tools without links do.
func attachForeign(t *testing.T, e *nettest.End, how string) (id uint32, detach func()) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "someone_elses", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2 /* XDP_PASS */), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { prog.Close() })
	linkMode, netlinkMode := link.XDPDriverMode, uint32(unix.XDP_FLAGS_DRV_MODE)
	if strings.HasSuffix(how, "generic") {
		linkMode, netlinkMode = link.XDPGenericMode, unix.XDP_FLAGS_SKB_MODE
	}
	var l link.Link
	err = e.NS.Do(func() (err error) {
		if strings.HasPrefix(how, "link") {
			l, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: e.Index, Flags: linkMode})
			return err
		}
		return netlink.LinkSetXdpFdWithFlags(byName(t, e), prog.FD(), int(netlinkMode))
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := prog.Info()
	if err != nil {
		t.Fatal(err)
	}
	n, _ := info.ID()
	return uint32(n), func() {
		if l != nil {
			l.Close()
			return
		}
		if err := e.NS.Do(func() error { return netlink.LinkSetXdpFdWithFlags(byName(t, e), -1, int(netlinkMode)) }); err != nil {
			t.Fatal(err)
		}
	}
}

func byName(t *testing.T, e *nettest.End) netlink.Link {
	l, err := netlink.LinkByName(e.Name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
