package netns

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/verbs"
)

// sieve is an XDP program on a bridge port that drops IPv4 packets to UDP port
// 4791 by chance, of a seed.
type sieve struct{ state *ebpf.Map }

// sieveState is the value of its map.
type sieveState struct {
	Random    uint64
	Threshold uint64 // of 2^24: how many packets are dropped
	Dropped   uint64
	Passed    uint64
}

// newSieve drops so many of a hundred packets that come in by an interface.
func newSieve(t testing.TB, ns *nettest.NS, ifname string, percent uint64) *sieve {
	t.Helper()
	s := &sieve{}
	var err error
	s.state, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 32, MaxEntries: 1,
		Contents: []ebpf.MapKV{{Key: uint32(0), Value: sieveState{Random: seed(), Threshold: percent << 24 / 100}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.state.Close() })
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "Dual BSD/GPL", Instructions: sieveCode(s.state.FD())})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	err = ns.Do(func() error {
		i, err := netlink.LinkByName(ifname)
		if err != nil {
			return err
		}
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: i.Attrs().Index, Flags: link.XDPGenericMode})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sieveCode(state int) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // data
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // data_end
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, 14+20+8),
		asm.JGT.Reg(asm.R4, asm.R3, "pass"),
		asm.LoadMem(asm.R4, asm.R2, 12, asm.Half),
		asm.HostTo(asm.BE, asm.R4, asm.Half),
		asm.JNE.Imm(asm.R4, 0x0800, "pass"),
		asm.LoadMem(asm.R4, asm.R2, 14+9, asm.Byte),
		asm.JNE.Imm(asm.R4, 17, "pass"),
		asm.LoadMem(asm.R4, asm.R2, 14+20+2, asm.Half),
		asm.HostTo(asm.BE, asm.R4, asm.Half),
		asm.JNE.Imm(asm.R4, 4791, "pass"),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, state),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		// Knuth's linear congruential generator; its upper bits are the good ones.
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.LoadImm(asm.R2, 6364136223846793005, asm.DWord),
		asm.Mul.Reg(asm.R1, asm.R2),
		asm.LoadImm(asm.R2, 1442695040888963407, asm.DWord),
		asm.Add.Reg(asm.R1, asm.R2),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.RSh.Imm(asm.R1, 40),
		asm.LoadMem(asm.R2, asm.R0, 8, asm.DWord),
		asm.Mov.Imm(asm.R3, 1),
		asm.JLT.Reg(asm.R1, asm.R2, "drop"),
		asm.AddAtomic.Mem(asm.R0, asm.R3, asm.DWord, 24),
		asm.Mov.Imm(asm.R0, 2).WithSymbol("pass"), // XDP_PASS
		asm.Return(),
		asm.AddAtomic.Mem(asm.R0, asm.R3, asm.DWord, 16).WithSymbol("drop"),
		asm.Mov.Imm(asm.R0, 1), // XDP_DROP
		asm.Return(),
	}
}

// counts returns how many packets the sieve has dropped and passed.
func (s *sieve) counts(t testing.TB) (dropped, passed uint64) {
	t.Helper()
	var v sieveState
	if err := s.state.Lookup(uint32(0), &v); err != nil {
		t.Fatal(err)
	}
	return v.Dropped, v.Passed
}

// impatient asks again after 33 ms: less, and a busy machine is taken for a loss.
var impatient = verbs.ConnectOptions{Timeout: 13, RetryCnt: 7}

// Packets are lost both ways, and everything arrives all the same.
func TestLoss(t *testing.T) {
	for _, percent := range []uint64{2, 8} {
		t.Run(fmt.Sprintf("%d%%", percent), func(t *testing.T) {
			p, devs := openPair(t, nettest.Config{Bridge: true, MTU: 4200})
			var sieves [2]*sieve
			for i, port := range p.Ports {
				sieves[i] = newSieve(t, p.Bridge, port, percent)
			}
			for _, mtu := range []ib.MTU{ib.MTU256, ib.MTU1024, ib.MTU4096} {
				o := impatient
				o.PathMTU = mtu
				a, b := newSides(t, p, devs, chunks*chunk, o)
				for i, n := range []int{0, 1, 5001, 65537} {
					everyOperation(t, a, b, n, uint64(i), nil)
					everyOperation(t, b, a, n, uint64(i), nil)
				}
				l := startLoad(t, a, b)
				l.progresses(t, 30)
				if err := l.stop(); err != nil {
					t.Fatal(err)
				}
				a.destroy(t)
				b.destroy(t)
			}
			for i, s := range sieves {
				dropped, passed := s.counts(t)
				if share := float64(dropped) * 100 / float64(dropped+passed); share < float64(percent)/2 || share > float64(percent)*2 {
					t.Errorf("the bridge dropped %d packets of end %d, and passed %d: not %d%%", dropped, i, passed, percent)
				}
				t.Logf("the bridge dropped %d packets of end %d, and passed %d; %v", dropped, i, passed, devs[i].Stats().Counters)
			}
		})
	}
}
