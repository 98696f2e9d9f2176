// Package netif watches one network interface by netlink: its addresses and those
// of the VLANs above it, MTU and state, and the routes and neighbours behind it.
//
// An Interface lives in the network namespace of the thread that opened it,
// whichever thread uses it later.
package netif

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
)

// requestTimeout is how long the kernel may take to answer a request.
const requestTimeout = 2 * time.Second

// Interface is a watched network interface. All methods may be called by any
// goroutine.
type Interface struct {
	name  string
	index int

	requests *netlink.Handle
	dump     map[int]*nl.SocketHandle // for the requests that netlink hides a part of
	events   *nl.NetlinkSocket
	knocker  *knocker // nil: the kernel is asked
	stop     chan struct{}
	ended    sync.WaitGroup
	closing  sync.Once

	listLinks func() ([]netlink.Link, error)

	notify atomic.Pointer[func()]
	gids   atomic.Pointer[view]
	link   atomic.Pointer[linkState]

	joined memberships
	seen   observed // only for the goroutine that watches
	rivals []string // as they were when it was opened

	mu          sync.Mutex // guards what follows
	netdevs     []netdev
	table       gidTable
	neighbours  map[hopKey]neighbour
	routes      map[routeKey]route
	routeAge    uint64                // counts changes of routes and addresses
	asked       map[hopKey]clock.Time // neighbours in use: when the kernel was asked last
	linkChanged clock.Time
}

// linkState is what may change of an interface.
type linkState struct {
	mac   [6]byte
	mtu   int
	up    bool   // set up, and with a carrier
	l3    bool   // its frames have no Ethernet header
	gone  bool   // removed, or moved to another namespace
	downs uint64 // how often it went down
}

// observed is what was seen last of whether an interface is up. The kernel tells each
// change by a message, which may be read when that is over; what is asked for is the
// present, and may be ahead of the messages.
type observed struct {
	up    bool
	downs uint64
}

func (o *observed) see(up bool) {
	if o.up && !up {
		o.downs++
	}
	o.up = up
}

// isUp reports whether flags of an interface say that it is set up and has a carrier.
func isUp(flags uint32) bool { return flags&unix.IFF_UP != 0 && flags&unix.IFF_RUNNING != 0 }

// Open begins to watch an interface of the calling thread's network namespace.
func Open(name string) (*Interface, error) { return openWith(name, (*netlink.Handle).LinkList) }

// openWith is Open with a way to list all links, which tests have of their own.
func openWith(name string, links func(*netlink.Handle) ([]netlink.Link, error)) (*Interface, error) {
	runtime.LockOSThread() // all sockets in one namespace
	defer runtime.UnlockOSThread()
	i := &Interface{
		name: name, stop: make(chan struct{}), neighbours: make(map[hopKey]neighbour),
		routes: make(map[routeKey]route), asked: make(map[hopKey]clock.Time),
	}
	i.listLinks = func() ([]netlink.Link, error) { return links(i.requests) }
	if err := errors.Join(i.joined.open(), i.open()); err != nil {
		i.closeSockets()
		return nil, fmt.Errorf("watch %s: %w", name, err)
	}
	i.ended.Add(2)
	go i.watch()
	go i.keepFresh()
	return i, nil
}

func (i *Interface) open() (err error) {
	if i.requests, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	if err := i.requests.SetSocketTimeout(requestTimeout); err != nil {
		return err
	}
	s, err := nl.GetNetlinkSocketAt(-1, -1, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	i.dump = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}
	timeout := unix.NsecToTimeval(int64(requestTimeout))
	if err := s.SetReceiveTimeout(&timeout); err != nil {
		return err
	}
	link, err := i.requests.LinkByName(i.name)
	if err != nil {
		return err
	}
	i.index = link.Attrs().Index
	i.knocker = openKnocker(i.name)
	// First the events, then the state: so nothing is missed in between.
	if i.events, err = nl.Subscribe(unix.NETLINK_ROUTE, groups...); err != nil {
		return fmt.Errorf("subscribe to netlink: %w", err)
	}
	// Best effort: a burst of events that overruns the buffer costs a new look at everything.
	_ = i.events.SetReceiveBufferSize(1<<20, true)
	if err := i.resync(); err != nil {
		return err
	}
	i.findRivals()
	return nil
}

// Name returns the interface's name when it was opened.
func (i *Interface) Name() string { return i.name }

// Index returns the interface's index in its namespace.
func (i *Interface) Index() int { return i.index }

// MAC returns the interface's Ethernet address; zero when it has none.
func (i *Interface) MAC() [6]byte { return i.link.Load().mac }

// Ethernet reports whether the interface's frames have an Ethernet header: those
// of tunnels have none.
func (i *Interface) Ethernet() bool { return !i.link.Load().l3 }

// MTU returns the interface's MTU in bytes.
func (i *Interface) MTU() int { return i.link.Load().mtu }

// Up reports whether the interface is up and has a carrier.
func (i *Interface) Up() bool { return i.link.Load().up }

// Downs returns how often the interface went down since Open, also for a moment.
func (i *Interface) Downs() uint64 { return i.link.Load().downs }

// Gone reports whether the interface was removed, or moved to another namespace.
func (i *Interface) Gone() bool { return i.link.Load().gone }

// GIDs returns the addresses by GID index; see gidTable. The caller doesn't
// change the slice.
func (i *Interface) GIDs() []ib.GID { return i.gids.Load().gids }

// VLANs returns the ids of the VLANs that the addresses are of, by GID index, and
// 0 for those of none. The caller doesn't change the slice, which may be longer
// than that of GIDs a moment before.
func (i *Interface) VLANs() []uint16 { return i.gids.Load().vlans }

// WithoutGID returns how many addresses have no GID, as the table is full.
func (i *Interface) WithoutGID() int { return i.gids.Load().left }

// Netdevs returns the names of the netdevs that the addresses are of, by GID index.
func (i *Interface) Netdevs() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	names := make([]string, len(i.table.slots))
	for k, s := range i.table.slots {
		for _, d := range i.netdevs {
			if s.present && d.index == s.netdev {
				names[k] = d.name
			}
		}
	}
	return names
}

// Notify sets the function that is called when anything changed. It runs on a
// goroutine of the Interface and must not block.
func (i *Interface) Notify(f func()) { i.notify.Store(&f) }

func (i *Interface) changed() {
	if f := i.notify.Load(); f != nil {
		(*f)()
	}
}

// Close ends the watch. Notify's function is not called afterwards. It must not
// be called from within that function.
func (i *Interface) Close() error {
	i.closing.Do(func() {
		close(i.stop)
		i.events.Close()
		i.ended.Wait()
		i.closeSockets()
	})
	return nil
}

func (i *Interface) closeSockets() {
	i.joined.close()
	if i.requests != nil {
		i.requests.Close()
	}
	for _, s := range i.dump {
		s.Close()
	}
	if i.knocker != nil {
		i.knocker.close()
	}
	if i.events != nil {
		i.events.Close()
	}
}

// readLink looks at the interface itself, and reports whether it changed.
func (i *Interface) readLink() (changed bool, err error) {
	link, err := i.requests.LinkByIndex(i.index)
	var missing netlink.LinkNotFoundError
	switch {
	case errors.As(err, &missing) || errors.Is(err, unix.ENODEV):
		return i.setGone(), nil
	case err != nil:
		return false, fmt.Errorf("look at the interface: %w", err)
	}
	a := link.Attrs()
	now := linkState{mtu: a.MTU, up: isUp(a.RawFlags)}
	i.seen.see(now.up)
	now.downs = i.seen.downs
	now.l3 = a.EncapType != "ether" && a.EncapType != "loopback"
	copy(now.mac[:], a.HardwareAddr)
	old := i.link.Swap(&now)
	return old == nil || *old != now, nil
}

func (i *Interface) setGone() bool {
	var now linkState
	if old := i.link.Load(); old != nil {
		now = *old
	}
	was := now.gone
	i.seen.see(false)
	now.up, now.gone, now.downs = false, true, i.seen.downs
	i.link.Store(&now)
	return !was
}

// ipOf makes the form that package netlink wants.
func ipOf(a netip.Addr) net.IP { return a.AsSlice() }

// addrOf is its inverse: IPv4 addresses are never in IPv6 form.
func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
