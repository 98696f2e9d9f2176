package verbs

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/mem"
)

// Options are how a device is opened. The zero value works.
type Options struct {
	Name     string  // of the device; empty: that of the Port, or of the interface
	NodeGUID ib.GUID // 0: made from the interface's MAC address, as rxe does, or from the device's name if there is none

	// Of Open only.
	Link LinkKind      // what frames go by
	XDP  XDPOptions    // how AF_XDP is used
	Spin time.Duration // how long an idle worker looks for more before it sleeps; 0: 20 µs; negative: never
	// PKeys is the P_Key table of the port: the partitions that it is in, as full or limited member (IBA 10.9). Nil means
	// ib.PKeyDefault alone, as on every Linux RoCE device. On Ethernet nobody else sets it.
	PKeys ib.PKeyTable
	// NoCongestionControl turns DCQCN off: packets aren't capable of ECN, and
	// congestion notifications are neither sent nor heeded (Annex A17.9).
	NoCongestionControl bool
	// AllowPeers lists whose packets are taken; empty: everybody's. See SetAllowPeers.
	AllowPeers []netip.Prefix
}

// Device is an RDMA device with one port. All methods may be called by any goroutine.
type Device struct {
	name   string
	guid   ib.GUID
	engine engine
	events eventQueue

	mu       sync.Mutex
	closed   bool
	pds      set[*PD]
	mrs      set[*MR]
	mws      set[*MW]
	cqs      set[*CQ]
	srqs     set[*SRQ]
	qps      set[*QP]
	ahs      set[*AH]
	channels set[*CompChannel]
}

// set is a set of a device's objects.
type set[T comparable] map[T]struct{}

// OpenPort makes a Device of a Port, which the Device then owns.
func OpenPort(p *rocev2.Port, o Options) *Device { return newDevice(portEngine{p}, o) }

func newDevice(e engine, o Options) *Device {
	if o.Name == "" {
		o.Name = e.Name()
	}
	if o.NodeGUID == 0 {
		o.NodeGUID = ib.GUIDFromName(machineID(), o.Name)
	}
	d := &Device{
		name: o.Name, guid: o.NodeGUID, engine: e,
		pds: set[*PD]{}, mrs: set[*MR]{}, mws: set[*MW]{}, cqs: set[*CQ]{}, srqs: set[*SRQ]{}, qps: set[*QP]{}, ahs: set[*AH]{}, channels: set[*CompChannel]{},
	}
	d.events.init()
	d.watchPort()
	return d
}

// machineID tells this host from others; empty if nothing does.
func machineID() string {
	id, _ := os.ReadFile("/etc/machine-id") // without it, the host's name must do
	if len(id) == 0 {
		name, _ := os.Hostname()
		return name
	}
	return string(id)
}

// Name returns the name of the device.
func (d *Device) Name() string { return d.name }

// DeviceAttr are the attributes of a device, as ibv_device_attr has them. The limits are the ones that are kept: so many
// can be had, as far as there is memory for them, and one more is an error that names the limit.
type DeviceAttr struct {
	Name            string
	NodeGUID        ib.GUID
	MaxMRSize       uint64 // bytes of a memory region
	MaxQP           int
	MaxQPWR         int // work requests of a queue
	MaxSGE          int // elements of a work request
	MaxSGERd        int // the same of a READ
	MaxInline       int // bytes of inline data
	MaxCQ           int
	MaxCompChannel  int // completion channels; ibv_device_attr has no limit
	MaxCQE          int // completions of a CQ
	MaxSRQ          int
	MaxSRQWR        int // work requests of an SRQ
	MaxSRQSge       int // elements of each
	MaxMR           int
	MaxMW           int
	MaxFastRegPages int // pages of a region that work requests register
	MaxPD           int
	MaxAH           int
	MaxPKeys        int // entries of a P_Key table
	MaxQPRdAtom     int // READs and atomics that a peer may have outstanding at a QP
	MaxResRdAtom    int // the same of all QPs
	MaxQPInitRdAtom int // READs and atomics that a QP may have outstanding at its peer
	AtomicCap       AtomicCap
	PhysPortCnt     int
	LocalCAAckDelay int // the time in which a peer may expect an ACK: 4.096 µs × 2^n

	MaxMcastGrp           int // multicast groups that QPs are attached to
	MaxMcastQPAttach      int // QPs of one of them
	MaxTotalMcastQPAttach int // QPs of all of them, each as often as it is attached
}

// AtomicCap says with what RDMA atomics are atomic.
type AtomicCap uint8

// The capabilities, numbered as ibv_atomic_cap.
const (
	AtomicNone AtomicCap = iota
	AtomicHCA            // with those of this device
	AtomicGlob           // with all accesses, this process's sync/atomic included
)

// limits of every device.
var limits = DeviceAttr{
	MaxMRSize: 1 << 46, MaxQP: 1 << 16, MaxQPWR: 1 << 15, MaxSGE: 32, MaxSGERd: 32, MaxInline: 4096, MaxCQ: 1 << 16, MaxCQE: 1 << 22,
	MaxMR: 1 << 19, MaxPD: 1 << 16, MaxAH: 1 << 16, MaxQPRdAtom: 128, MaxResRdAtom: 1 << 16 * 128, MaxQPInitRdAtom: 128, AtomicCap: AtomicGlob, PhysPortCnt: 1,
	LocalCAAckDelay: 15, MaxMW: 1 << 19, MaxCompChannel: 1 << 16, MaxFastRegPages: mem.MaxPages, MaxPKeys: rocev2.MaxPKeys,
	MaxSRQ: 1 << 16, MaxSRQWR: 1 << 15, MaxSRQSge: 32,
	MaxMcastGrp: rocev2.MaxMcastGrp, MaxMcastQPAttach: rocev2.MaxMcastQPAttach, MaxTotalMcastQPAttach: rocev2.MaxTotalMcastQPAttach,
}

// Query returns the attributes of the device.
func (d *Device) Query() DeviceAttr {
	a := limits
	a.Name, a.NodeGUID = d.name, d.guid
	return a
}

// SetAllowPeers makes the device take packets from now on only from source addresses in these prefixes; none means from
// all. What others send is dropped before anything else is looked at, and counted as "not_a_peer": nftables and the like
// don't see packets that go by AF_XDP. Traffic of the device with itself is not concerned. The error wraps ErrInvalid: one of
// the list is no prefix.
func (d *Device) SetAllowPeers(list []netip.Prefix) error {
	if err := d.engine.SetAllowPeers(list); err != nil {
		return fmt.Errorf("verbs: %w: %w", ErrInvalid, err)
	}
	return nil
}

// Close destroys everything that was made on the device, as the kernel does for a process that ends, and the device
// itself. Who waits on a completion channel gets ErrClosed.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	qps, mrs, channels := keys(d.qps), keys(d.mrs), keys(d.channels)
	mws, srqs := keys(d.mws), keys(d.srqs)
	clear(d.mrs)
	clear(d.mws)
	d.mu.Unlock()

	for _, q := range qps {
		q.Destroy()
	}
	for _, s := range srqs {
		s.gone.Store(true)
	}
	for _, w := range mws {
		w.mw.Dealloc()
	}
	for _, m := range mrs {
		m.end()
	}
	for _, c := range channels {
		c.close()
	}
	d.events.close()
	return d.engine.Close()
}

func keys[T comparable](s set[T]) []T { return slices.Collect(maps.Keys(s)) }

// add enters an object of the device, at most limit of its kind, which Max… of DeviceAttr names.
func add[T comparable](d *Device, s set[T], x T, limit int, kind string) error {
	switch {
	case d.closed:
		return d.errorf("create %s: %w", kind, ErrClosed)
	case len(s) >= limit:
		return d.errorf("create %s: %w: Max%[1]s is %[3]d, and as many exist", kind, ErrLimit, limit)
	}
	s[x] = struct{}{}
	return nil
}

// stillIn says whether x, which a call is about or something is to be made of, is still there. Under mu.
func stillIn[T comparable](d *Device, s set[T], x T, what string) error {
	if _, ok := s[x]; !ok {
		return d.errorf("%s: %w", what, ErrClosed)
	}
	return nil
}

// count says how many of what, for errors.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
