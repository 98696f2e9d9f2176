package xdp

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/bpf"
)

// program is the loaded XDP program with its maps and, once attached, its link.
// The link keeps it attached; when the process ends, however it ends, the kernel
// closes the link and the program is gone.
type program struct {
	maps bpf.RoceMaps
	prog *ebpf.Program
	link link.Link
	id   uint32
}

// loadProgram loads the program, with or without multi-buffer support.
func loadProgram(slots int, frags bool) (*program, error) {
	if err := rlimit.RemoveMemlock(); err != nil { // does nothing since Linux 5.11
		return nil, fmt.Errorf("raise the limit of locked memory for BPF maps: %w", err)
	}
	spec, err := bpf.LoadRoce()
	if err != nil {
		return nil, err
	}
	spec.Maps["xsks"].MaxEntries = uint32(max(slots, 64))
	p := &program{}
	if err = p.load(spec, frags); err != nil {
		p.close()
		return nil, plain(err)
	}
	info, err := p.prog.Info()
	if err == nil {
		id, _ := info.ID()
		p.id = uint32(id)
	}
	return p, nil
}

func (p *program) load(spec *ebpf.CollectionSpec, frags bool) error {
	if frags {
		var o struct {
			bpf.RoceMaps
			Prog *ebpf.Program `ebpf:"urxe_roce_frags"`
		}
		err := spec.LoadAndAssign(&o, nil)
		p.maps, p.prog = o.RoceMaps, o.Prog
		return err
	}
	var o struct {
		bpf.RoceMaps
		Prog *ebpf.Program `ebpf:"urxe_roce"`
	}
	err := spec.LoadAndAssign(&o, nil)
	p.maps, p.prog = o.RoceMaps, o.Prog
	return err
}

// plain reduces a permission error to its errno: ebpf's text blames
// RLIMIT_MEMLOCK, which it is not. The verifier's EACCES keeps its log.
func plain(err error) error {
	if errors.Is(err, unix.EPERM) {
		return unix.EPERM
	}
	return err
}

// attach puts the program on the interface and never displaces another.
func (p *program) attach(dev *device, mode Mode) error {
	flags := link.XDPDriverMode
	if mode == ModeGeneric {
		flags = link.XDPGenericMode
	}
	try := func() (err error) {
		p.link, err = link.AttachXDP(link.XDPOptions{Program: p.prog, Interface: dev.index, Flags: flags})
		return busy(err)
	}
	err := retryBusy(try, func() bool { return !occupied(dev.name) })
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%w: %s: %w", ErrInUse, occupant(dev.name), err)
	}
	return err
}

// busy makes the two errnos that mean "there is a program already" one: EEXIST
// says that it is in another mode.
func busy(err error) error {
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w: %w", unix.EBUSY, err)
	}
	return err
}

// inTheWay finds what has the program that keeps another off an interface: itself,
// or the bond that it is a slave of.
func inTheWay(ifname string) (dev *device, found bool) {
	dev, err := findDevice(ifname)
	if err == nil && !dev.attached && dev.master != "" {
		dev, err = findDevice(dev.master)
	}
	return dev, err == nil && dev.attached
}

// occupied reports whether the program in the way is there to stay. One whose link
// nobody holds goes when the kernel is done with its late holder (or is pinned,
// which the end of the retries shows).
func occupied(ifname string) bool {
	dev, found := inTheWay(ifname)
	if !found {
		return false
	}
	_, linked := linkOf(dev.index, dev.progID)
	return !linked || len(programHolders(dev.index, dev.progID)) > 0
}

// occupant describes the program in the way.
func occupant(ifname string) string {
	dev, found := inTheWay(ifname)
	switch {
	case !found:
		return "it has a program that cannot be found"
	case dev.name != ifname:
		return fmt.Sprintf("%s, which it is a slave of, has %s", dev.name, describeProgram(dev.index, dev.progID))
	}
	return "it has " + describeProgram(dev.index, dev.progID)
}

func (p *program) register(s *Socket) error {
	return p.maps.Xsks.Update(uint32(s.queue), uint32(s.fd), ebpf.UpdateAny)
}

func (p *program) addAddr(addr [16]byte) error {
	return p.maps.Addrs.Update(addr, uint8(1), ebpf.UpdateAny)
}

func (p *program) removeAddr(addr [16]byte) error {
	err := p.maps.Addrs.Delete(addr)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// stats adds up the counters of all processors.
func (p *program) stats(st *ProgramStats) error {
	for i, n := range map[bpf.Count]*uint64{
		bpf.CountRedirected: &st.Redirected, bpf.CountNoSocket: &st.NoSocket,
		bpf.CountForeign: &st.Foreign, bpf.CountOptions: &st.Options,
	} {
		var cpus []uint64
		if err := p.maps.Counts.Lookup(uint32(i), &cpus); err != nil {
			return err
		}
		for _, c := range cpus {
			*n += c
		}
	}
	return nil
}

func (p *program) trouble() string { return "" }

// detached reports whether the link attaches the program no more: it has no
// interface then.
func (p *program) detached() bool {
	info, err := p.link.Info()
	return err == nil && info.XDP() != nil && info.XDP().Ifindex == 0
}

// close detaches first, so that no packet is redirected to a closing socket.
func (p *program) close() error {
	var errs []error
	if p.link != nil {
		errs = append(errs, p.link.Close())
		p.link = nil
	}
	if p.prog != nil {
		errs = append(errs, p.prog.Close())
	}
	for _, m := range []*ebpf.Map{p.maps.Xsks, p.maps.Addrs, p.maps.Counts} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}
