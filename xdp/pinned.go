package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// pinnedMap is an XSKMAP that the owner of another XDP program has pinned. The kernel
// takes a socket out of each map when it is closed, and nobody else's.
type pinnedMap struct {
	path, ifname string
	ifindex      int
	links        *netlink.Handle // in the interface's namespace
	sockets      []*Socket
	logf         func(string, ...any)
	stop         chan struct{}
	stopped      sync.WaitGroup

	mu   sync.Mutex // guards what follows
	m    *ebpf.Map
	id   ebpf.MapID
	what string // the trouble, or ""
}

// pinnedRungs are the ways to use another's map: zero-copy is for where its program
// runs in the driver.
func pinnedRungs(dev *device) []rung {
	if dev.generic {
		return []rung{{mode: ModeGeneric, pinned: true}}
	}
	return []rung{{mode: ModeDriver, zerocopy: true, pinned: true}, {mode: ModeDriver, pinned: true}}
}

// openPinned are the steps to a map of another's.
func (p *Port) openPinned(o Options) []step {
	m := &pinnedMap{path: o.XSKMap, stop: make(chan struct{})}
	return []step{
		{"open pinned map", func() (err error) {
			m.ifname, m.ifindex = p.dev.name, p.dev.index
			if m.m, m.id, err = loadPinned(o.XSKMap, p.dev.rx); err == nil {
				p.from = m
			}
			return err
		}},
		{"open netlink", func() (err error) { m.links, err = netlink.NewHandle(unix.NETLINK_ROUTE); return err }},
	}
}

// loadPinned opens a map that has room for the sockets of so many queues.
func loadPinned(path string, queues int) (*ebpf.Map, ebpf.MapID, error) {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, fmt.Errorf("no map is pinned at %s: start the program's owner first: %w", path, err)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", path, plain(err))
	}
	id, err := checkPinned(m, queues)
	if err != nil {
		m.Close()
		return nil, 0, fmt.Errorf("%s: %w", path, err)
	}
	return m, id, nil
}

func checkPinned(m *ebpf.Map, queues int) (ebpf.MapID, error) {
	switch {
	case m.Type() != ebpf.XSKMap:
		return 0, fmt.Errorf("it is a map of type %v and not an XSKMAP: %w", m.Type(), unix.EINVAL)
	case int(m.MaxEntries()) < queues:
		return 0, fmt.Errorf("it has %d entries, and the interface %d queues: its owner has to make it larger: %w", m.MaxEntries(), queues, unix.EINVAL)
	}
	info, err := m.Info()
	if err != nil {
		return 0, err
	}
	id, _ := info.ID()
	return id, nil
}

// register puts a socket at its queue's index. An entry that is another socket's stays.
func (p *pinnedMap) register(s *Socket) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return put(p.m, s)
}

// putBack is put, unless the socket was closed.
func putBack(m *ebpf.Map, s *Socket) error {
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.fd < 0 {
		return nil
	}
	return put(m, s)
}

// put does nothing if the entry is the socket's already.
func put(m *ebpf.Map, s *Socket) error {
	err := m.Update(uint32(s.queue), uint32(s.fd), ebpf.UpdateNoExist)
	if errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("%w: entry %d of the XSKMAP is another socket's: %w", ErrInUse, s.queue, err)
	}
	return err
}

func (p *pinnedMap) addAddr([16]byte) error    { return nil }
func (p *pinnedMap) removeAddr([16]byte) error { return nil }
func (p *pinnedMap) stats(*ProgramStats) error { return nil }

func (p *pinnedMap) trouble() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.what
}

func (p *pinnedMap) detached() bool { return false }

// lookEvery is how often it is looked whether the map is still what it was.
const lookEvery = 500 * time.Millisecond

// watch follows what the owner does, until close.
func (p *pinnedMap) watch(sockets []*Socket, logf func(string, ...any)) {
	p.sockets, p.logf = sockets, logf
	p.look()
	p.stopped.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-tick.C:
				p.look()
			}
		}
	})
}

// look sees that the sockets are in the map that is pinned now, and notes what keeps
// packets from coming.
func (p *pinnedMap) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []string
	if err := p.follow(); err != nil {
		found = append(found, err.Error())
	}
	for _, s := range p.sockets {
		// It also brings back what was taken out: an owner that starts anew clears.
		if err := putBack(p.m, s); err != nil {
			found = append(found, err.Error())
		}
	}
	if l, err := p.links.LinkByIndex(p.ifindex); err == nil && (l.Attrs().Xdp == nil || !l.Attrs().Xdp.Attached) {
		found = append(found, "no XDP program is attached: nothing comes before its owner does that")
	}
	if what := strings.Join(found, "; "); what != p.what {
		p.what = what
		p.logf("%s: pinned XSKMAP %s: %s", p.ifname, p.path, cmp.Or(what, "works again"))
	}
}

// follow goes over to the map that is pinned now.
func (p *pinnedMap) follow() error {
	m, id, err := loadPinned(p.path, len(p.sockets))
	if err != nil {
		return err
	}
	if id == p.id {
		return m.Close()
	}
	p.logf("%s: the XSKMAP at %s was replaced: map %d is now %d", p.ifname, p.path, p.id, id)
	old := p.m
	p.m, p.id = m, id
	return old.Close()
}

func (p *pinnedMap) close() error {
	close(p.stop)
	p.stopped.Wait()
	if p.links != nil {
		p.links.Close()
	}
	return p.m.Close()
}
