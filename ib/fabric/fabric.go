package fabric

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// Fabric is a subnet. All methods are safe for concurrent use.
type Fabric struct {
	mu        sync.Mutex
	nodes     []*Node
	byName    map[string]*Node
	defaults  Defaults
	guids     [4]ib.GUID // The next one, by node type.
	endpoints map[uint16]*Endpoint
	lastID    uint16
	losses    []Loss
	rng       *rand.Rand
	now       func() clock.Time
	stats     Stats
	changed   []*Node // Switches that owe trap 128.
	scratch   mad.Packet
}

// Stats counts what happened to packets.
type Stats struct {
	Injected  uint64 // Sent by endpoints.
	Answered  uint64 // Answered by nodes themselves.
	Delivered uint64 // Handed to endpoints.
	Lost      uint64 // Dropped because a Loss said so.
	Dropped   uint64 // Met no route, a link that is down, nobody, or a wrong key.
	Sets      map[mad.AttributeID]uint64
}

// Defaults are what new nodes have. The zero value is what stock ibsim gives
// its nodes: 4x links at 2.5 Gb/s a lane, 2048 byte packets, 8 data lanes.
type Defaults struct {
	VLCap      uint8  // In its encoding: 4 is VL0 to VL7.
	MTUCap     ib.MTU // 2048 when 0.
	Width      uint8  // Widths enabled and supported.
	Speed      uint8  // Speeds enabled and supported.
	SpeedExt   uint8  // Extended speeds.
	LinearFDB  int    // Entries of a forwarding table: 49152 when 0.
	Multicast  int    // Entries of a multicast table: 1024 when 0.
	PKeys      int    // Entries of a P_Key table: 64 when 0; 8 in switches' port 0.
	VLArbCap   uint8  // Entries of each arbitration table: 8 when 0.
	VendorID   uint32
	DeviceID   uint16
	OptSLtoVL  bool // Switches take SLtoVL for many ports at once.
	NoTopInMFT bool
}

func (d *Defaults) fill() {
	setDefault(&d.VLCap, 4)
	setDefault(&d.MTUCap, ib.MTU2048)
	setDefault(&d.Width, 2)
	setDefault(&d.Speed, 1)
	setDefault(&d.LinearFDB, int(ib.LIDMulticastFirst))
	setDefault(&d.Multicast, 1024)
	setDefault(&d.PKeys, 64)
	setDefault(&d.VLArbCap, 8)
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// New returns an empty fabric.
func New(d Defaults) *Fabric {
	d.fill()
	f := &Fabric{
		byName: map[string]*Node{}, defaults: d, endpoints: map[uint16]*Endpoint{},
		rng: rand.New(rand.NewPCG(1, 1)), now: clock.Now,
	}
	f.guids = [4]ib.GUID{mad.NodeCA: 0x100000, mad.NodeSwitch: 0x200000, mad.NodeRouter: 0x300000}
	f.stats.Sets = map[mad.AttributeID]uint64{}
	return f
}

// NodeSpec describes a node that is added.
type NodeSpec struct {
	ID          string // Unique in the fabric.
	Description string // The ID when empty.
	Type        mad.NodeType
	Ports       int     // External ones: 1 to 254.
	GUID        ib.GUID // Chosen when 0; so is the next.
	SystemGUID  ib.GUID // GUID when 0.
	// PortGUIDs are those of a CA's or router's ports, by number; GUID and the
	// port's number added where there is none.
	PortGUIDs map[int]ib.GUID
	VendorID  uint32 // The fabric's default when 0.
	DeviceID  uint16 // The fabric's default when 0.
}

// Add adds a node without links.
func (f *Fabric) Add(s NodeSpec) (*Node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case s.ID == "":
		return nil, fmt.Errorf("fabric: a node without ID")
	case f.byName[s.ID] != nil:
		return nil, fmt.Errorf("fabric: node %q is there twice", s.ID)
	case s.Ports < 1 || s.Ports > 254:
		return nil, fmt.Errorf("fabric: node %q has %d ports: want 1 to 254", s.ID, s.Ports)
	case s.Type < mad.NodeCA || s.Type > mad.NodeRouter:
		return nil, fmt.Errorf("fabric: node %q: %v", s.ID, s.Type)
	}
	if s.GUID == 0 {
		s.GUID = f.guids[s.Type]
		f.guids[s.Type]++
		if s.Type != mad.NodeSwitch {
			f.guids[s.Type] += ib.GUID(s.Ports)
		}
	}
	n := newNode(f, s)
	f.nodes = append(f.nodes, n)
	f.byName[s.ID] = n
	return n, nil
}

// Node returns the node with an ID, or else the first with that description;
// nil when there is none.
func (f *Fabric) Node(name string) *Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.find(name)
}

func (f *Fabric) find(name string) *Node {
	if n := f.byName[name]; n != nil {
		return n
	}
	for _, n := range f.nodes {
		if n.description() == name {
			return n
		}
	}
	return nil
}

// Nodes returns all nodes, in the order in which they were added.
func (f *Fabric) Nodes() []*Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*Node(nil), f.nodes...)
}

// Seed begins the sequence of chances that losses follow.
func (f *Fabric) Seed(seed uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rng = rand.New(rand.NewPCG(seed, 0x6661627269632121))
}

// SetClock replaces the time by which leases of M_Keys run out.
func (f *Fabric) SetClock(now func() clock.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = now
}

// Stats returns what happened so far.
func (f *Fabric) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stats
	s.Sets = map[mad.AttributeID]uint64{}
	for k, v := range f.stats.Sets {
		s.Sets[k] = v
	}
	return s
}
