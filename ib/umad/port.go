package umad

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/internal/inbox"
	"github.com/urxe/urxe/ib/mad"
)

// Options say which port to open, and what for. The zero value is the best
// InfiniBand port, for a program that only asks.
type Options struct {
	// GUID is that of the port, as ibstat shows it; 0 is any.
	GUID ib.GUID
	// Device and Port name it: "mlx5_0", 1; empty and 0 are any. A port that is
	// named need not be InfiniBand: RoCE ports have general services.
	Device string
	Port   int
	// Agents are the classes that the port speaks; Clients() when empty.
	Agents []Agent
	// Queue is how many unsolicited packets wait for Recv: 4096 when 0.
	Queue int
}

// ErrNoSubnet is why RoCE ports are not opened for subnet management: they have no
// QP0, and no manager to be or to ask (Annex A16.4, A17).
var ErrNoSubnet = errors.New("a RoCE port has no subnet manager and needs none: its addresses are those of IP, its routes the network's")

// Clients are the agents of a program that asks subnet management,
// administration and performance management, and answers nothing.
func Clients() []Agent {
	return []Agent{{Class: mad.ClassSubnLID}, {Class: mad.ClassSubnDirect}, {Class: mad.ClassSubnAdm}, {Class: mad.ClassPerf}}
}

// Manager are the agents of a subnet manager with its subnet administration.
func Manager() []Agent {
	return []Agent{
		{Class: mad.ClassSubnLID, Methods: []mad.Method{mad.MethodGet, mad.MethodSet, mad.MethodTrap, mad.MethodTrapRepress}},
		{Class: mad.ClassSubnDirect, Methods: []mad.Method{mad.MethodGet, mad.MethodSet}},
		{Class: mad.ClassSubnAdm, Methods: []mad.Method{mad.MethodGet, mad.MethodSet, mad.MethodTrap, mad.MethodGetTable,
			mad.MethodGetTrace, mad.MethodGetMulti, mad.MethodDelete}},
		{Class: mad.ClassPerf},
	}
}

// Port is a mad.Port of this host.
type Port struct {
	info    Info
	smiInfo Info // Of its planes' manager; mostly the same port.
	roots   roots
	devices []*device
	agents  map[mad.Class]agent
	in      *inbox.Inbox
	bad     atomic.Uint64

	smMu sync.Mutex
	sm   *os.File

	closing sync.Once
	readers sync.WaitGroup
}

var _ mad.Port = (*Port)(nil)

// agent is a class that was registered.
type agent struct {
	id  uint32
	dev *device
}

// device is an open umad file.
type device struct {
	name string
	file *os.File
	ctl  func(f *os.File, request uint, arg []byte) error

	mu  sync.Mutex
	buf [messageSize]byte
}

// opener opens device files; tests have another.
type opener struct {
	roots roots
	open  func(path string) (*os.File, error)
	ctl   func(f *os.File, request uint, arg []byte) error
}

// Open opens a port.
func Open(o Options) (*Port, error) {
	return opener{roots: kernel, open: openNonblock, ctl: control}.port(o)
}

// openNonblock opens a file so that the runtime's poller waits for it.
func openNonblock(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func (w opener) port(o Options) (*Port, error) {
	ports, err := w.roots.list()
	if err != nil {
		return nil, err
	}
	smi, gsi, err := choose(ports, &o)
	if err != nil {
		return nil, err
	}
	if len(o.Agents) == 0 {
		o.Agents = Clients()
	}
	if !infiniBand(&smi) && slices.ContainsFunc(o.Agents, func(a Agent) bool { return a.Class.Subnet() }) {
		return nil, fmt.Errorf("umad: %s port %d (%s): %w: %w", smi.Device, smi.Port, smi.LinkLayer, ErrNoSubnet, unix.EPROTONOSUPPORT)
	}
	if o.Queue == 0 {
		o.Queue = 4096
	}
	p := &Port{info: gsi, smiInfo: smi, roots: w.roots, agents: map[mad.Class]agent{}, in: inbox.New(o.Queue, nil)}
	for i := range o.Agents {
		if err := p.register(w, &o.Agents[i]); err != nil {
			p.closeFiles()
			return nil, err
		}
	}
	for _, d := range p.devices {
		p.readers.Go(func() { p.read(d) })
	}
	return p, nil
}

// register makes an agent, on the device that carries its class.
func (p *Port) register(w opener, a *Agent) error {
	info := &p.info
	if a.Class.Subnet() {
		info = &p.smiInfo
	}
	d, err := p.device(w, info.Umad)
	if err != nil {
		return err
	}
	b := a.request()
	if err := d.ctl(d.file, ioctlRegisterAgent2, b[:]); err != nil {
		return fmt.Errorf("umad: %s port %d: class 0x%02x: %w%s", info.Device, info.Port, uint8(a.Class), err, registerHint(err))
	}
	p.agents[a.Class] = agent{id: host.Uint32(b[regID:]), dev: d}
	return nil
}

func registerHint(err error) string {
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT):
		return " (this port has no subnet management: it is no InfiniBand port)"
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EBUSY):
		return " (another program may have this class: is a subnet manager running on this port?)"
	case errors.Is(err, unix.ENOMEM):
		return " (a port can have 32 agents)"
	}
	return ""
}

// device opens a device file, once.
func (p *Port) device(w opener, name string) (*device, error) {
	for _, d := range p.devices {
		if d.name == name {
			return d, nil
		}
	}
	f, err := w.open(filepath.Join(w.roots.dev, name))
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("umad: %w (run as root, or give this user access to the file)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("umad: %w", err)
	}
	d := &device{name: name, file: f, ctl: w.ctl}
	p.devices = append(p.devices, d)
	return d, nil
}

// read moves packets from the kernel to the queue.
func (p *Port) read(d *device) {
	var pkt mad.Packet
	buf := make([]byte, headerSize+2048) // Adapters of Omni-Path have MADs of 2 KiB, which are refused as MADs.
	for {
		n, err := d.file.Read(buf)
		switch {
		case errors.Is(err, fs.ErrClosed):
			p.in.Close(mad.ErrClosed)
			return
		case errors.Is(err, unix.ENOSPC):
			buf = make([]byte, 2*len(buf))
			continue
		case err != nil || n == 0:
			p.in.Close(fmt.Errorf("umad: %s: reading: %w", d.name, errors.Join(err, io.ErrUnexpectedEOF)))
			return
		}
		if err := parseMessage(buf[:n], &pkt); err != nil {
			p.bad.Add(1)
			continue
		}
		p.in.Put(&pkt, pkt.Err == nil && !pkt.MAD().IsResponse())
	}
}

// Send implements mad.Port.
func (p *Port) Send(pkt *mad.Packet) error {
	a, ok := p.agents[pkt.MAD().Class()]
	if !ok {
		return fmt.Errorf("umad: %s port %d was not opened for class 0x%02x", p.info.Device, p.info.Port, uint8(pkt.MAD().Class()))
	}
	d := a.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	putMessage(&d.buf, pkt, a.id)
	_, err := d.file.Write(d.buf[:])
	switch {
	case errors.Is(err, fs.ErrClosed):
		return mad.ErrClosed
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("umad: %s port %d: TID 0x%08x: %w (a request with it may be under way)", p.info.Device, p.info.Port, pkt.Key(), err)
	case err != nil:
		return fmt.Errorf("umad: %s port %d: %w", p.info.Device, p.info.Port, err)
	}
	return nil
}

// Recv implements mad.Port.
func (p *Port) Recv(ps []mad.Packet) (int, error) { return p.in.Recv(ps) }

// Dropped implements mad.Port.
func (p *Port) Dropped() uint64 { return p.in.Dropped() }

// Bad returns how many messages of the kernel were no MADs.
func (p *Port) Bad() uint64 { return p.bad.Load() }

// Local implements mad.Port.
func (p *Port) Local() (mad.Local, error) {
	i, err := p.Info()
	return i.Local, err
}

// Info returns all that is known of the port now.
func (p *Port) Info() (Info, error) {
	i := p.info
	if err := p.roots.refresh(&i); err != nil {
		return Info{}, fmt.Errorf("umad: %w", err)
	}
	return i, nil
}

// SetSM implements mad.Port: IsSM is set while the port's issm file is open.
func (p *Port) SetSM(on bool) error {
	p.smMu.Lock()
	defer p.smMu.Unlock()
	switch {
	case on == (p.sm != nil):
		return nil
	case !on:
		err := p.sm.Close()
		p.sm = nil
		return err
	}
	fd, err := unix.Open(filepath.Join(p.roots.dev, p.smiInfo.ISSM), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("umad: %s port %d: another subnet manager runs on this port", p.smiInfo.Device, p.smiInfo.Port)
	}
	if err != nil {
		return fmt.Errorf("umad: %s port %d: %s: %w (RoCE ports may have no such file)", p.smiInfo.Device, p.smiInfo.Port, p.smiInfo.ISSM, err)
	}
	p.sm = os.NewFile(uintptr(fd), p.smiInfo.ISSM)
	return nil
}

// Close implements mad.Port.
func (p *Port) Close() error {
	var err error
	p.closing.Do(func() {
		err = p.SetSM(false)
		p.in.Close(mad.ErrClosed)
		p.closeFiles()
		p.readers.Wait()
	})
	return err
}

func (p *Port) closeFiles() {
	for _, d := range p.devices {
		d.file.Close()
	}
}
