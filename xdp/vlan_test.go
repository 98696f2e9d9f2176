package xdp_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/xdp"
)

// A tag in the packet is looked behind; what arrives still has it.
func TestVLANTagged(t *testing.T) {
	for _, mode := range modes {
		l := newLab(t, nettest.Config{MTU: 3500}, xdp.Options{Mode: mode})
		for _, n := range []int{100, 3514} {
			f := l.frame(0, n)
			l.arrives(0, slices.Concat(f[:12], []byte{0x81, 0, 0x60, 5}, f[12:n-4]))
		}
	}
}

// The kernel leaves a tag to the NIC, which a veth doesn't have: it gets lost
// before XDP, unless the sender's VLAN offload is off.
func TestVLANTagOfKernelSocket(t *testing.T) {
	for _, mode := range modes {
		for _, offload := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v, offload %v", mode, offload), func(t *testing.T) {
				l := &lab{Pair: nettest.New(t, nettest.Config{Offloads: offload}), t: t}
				s := l.open(1, xdp.Options{Mode: mode}).Sockets()[0]
				var c net.Conn
				err := l.Ends[0].NS.Do(func() (err error) {
					pushTag(t, l.Ends[0].Index)
					c, err = net.Dial("udp", l.Ends[1].V4.String()+":4791")
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				// ARP would be tagged, too, and not understood.
				if err := l.Ends[0].NS.Run("ip", "neigh", "replace", l.Ends[1].V4.String(), "lladdr", l.Ends[1].MAC.String(), "dev", "veth0"); err != nil {
					t.Fatal(err)
				}
				if _, err := c.Write(make([]byte, 100)); err != nil {
					t.Fatal(err)
				}
				got, _ := receive(t, s, time.Second)
				if len(got) < 142 {
					t.Fatalf("%d bytes came", len(got))
				}
				if tagged := bytes.Equal(got[12:16], []byte{0x81, 0, 0, 5}); tagged == offload {
					t.Errorf("tagged: %v; % x", tagged, got[:18])
				}
			})
		}
	}
}

// pushTag makes the kernel tag what it sends on an interface with VLAN 5.
func pushTag(t *testing.T, ifindex int) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "push_tag", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R2, int32(binary.NativeEndian.Uint16([]byte{0x81, 0}))), asm.Mov.Imm(asm.R3, 5),
			asm.FnSkbVlanPush.Call(), asm.Mov.Imm(asm.R0, 0), asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { prog.Close() })
	l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: prog, Attach: ebpf.AttachTCXEgress})
	if err != nil {
		nettest.SkipOrFail(t, fmt.Sprintf("tcx (Linux 6.6), to tag packets: %v", err))
	}
	t.Cleanup(func() { l.Close() })
}
