package conf

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urxe/urxe/ib"
)

// Membership is how a port belongs to a partition.
type Membership uint8

// The memberships: a limited member talks to full members only (IBA 10.9.1).
const (
	Limited Membership = 1 << iota
	Full
	Both = Limited | Full
)

func (m Membership) String() string {
	return [...]string{"none", "limited", "full", "both"}[m&3]
}

// Port is whom an entry of a partition names.
type Port uint8

// What an entry can name: one GUID, or all ports of a kind.
const (
	OneGUID Port = iota
	AllPorts
	AllCAs
	AllSwitches
	AllRouters
	Self
)

// Entry is a member of a partition, or a kind of members.
type Entry struct {
	Who        Port
	GUID       ib.GUID // of OneGUID
	Membership Membership
}

// Group is a multicast group that a partition has from the start.
type Group struct {
	MGID      ib.GID // zero is the IPoIB broadcast group
	Rate      ib.Rate
	MTU       ib.MTU
	SL        uint8
	Scopes    []uint8
	QKey      ib.QKey
	HasQKey   bool
	TClass    uint8
	FlowLabel uint32
}

// Partition is one P_Key and who has it.
type Partition struct {
	Name    string
	PKey    ib.PKey // its low 15 bits
	Index0  bool    // goes to place 0 of the tables
	IPoIB   bool
	Group   Group // what the broadcast group of IPoIB is like
	Groups  []Group
	Members []Entry
}

// DefaultPKey is the low 15 bits of the default partition's key.
const DefaultPKey ib.PKey = 0x7fff

// Partitions is a whole partitions.conf.
type Partitions struct {
	List []*Partition // the default partition first
	// AllowBoth gives a port that is a full and a limited member both keys;
	// otherwise it is a full one.
	AllowBoth bool
}

// NoPartitionFile is what holds without a partitions.conf: everybody is a full
// member of the default partition.
func NoPartitionFile() *Partitions {
	return &Partitions{List: []*Partition{{Name: "Default", PKey: DefaultPKey, IPoIB: true, Group: newGroup(), Members: []Entry{{Who: AllPorts, Membership: Full}}}}}
}

// LoadPartitions reads partitions.conf, or gives NoPartitionFile when there is none.
func LoadPartitions(path string) (p *Partitions, warnings []string, err error) {
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) || path == "" {
		return NoPartitionFile(), nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return ParsePartitions(string(b), path)
}

// PortOf is what a member is asked by.
type PortOf struct {
	GUID             ib.GUID
	CA, Switch, Self bool
}

func (e *Entry) names(p PortOf) bool {
	switch e.Who {
	case OneGUID:
		return e.GUID == p.GUID
	case AllPorts:
		return true
	case AllCAs:
		return p.CA
	case AllSwitches:
		return p.Switch
	case AllRouters:
		return !p.CA && !p.Switch
	}
	return p.Self
}

// Membership returns how a port belongs to the partition. An entry that names
// its GUID, or SELF, counts before those that name many.
func (p *Partition) Membership(port PortOf) (m Membership) {
	var single Membership
	for i := range p.Members {
		if e := &p.Members[i]; e.names(port) {
			if e.Who == OneGUID || e.Who == Self {
				single |= e.Membership
			} else {
				m |= e.Membership
			}
		}
	}
	return cmp.Or(single, m)
}

// Table returns the P_Key table that a port is to have.
func (ps *Partitions) Table(port PortOf) (keys []ib.PKey) {
	for _, p := range ps.List {
		m := p.Membership(port)
		var mine []ib.PKey
		if m&Full != 0 {
			mine = append(mine, p.PKey|0x8000)
		}
		if m == Limited || m == Both && ps.AllowBoth {
			mine = append(mine, p.PKey)
		}
		if p.Index0 {
			keys = append(mine, keys...)
		} else {
			keys = append(keys, mine...)
		}
	}
	return keys
}

// finish brings the default partition to the front, and makes what is missing.
func (ps *Partitions) finish() error {
	ps.number()
	i := slices.IndexFunc(ps.List, func(p *Partition) bool { return p.PKey == DefaultPKey })
	if i < 0 {
		ps.List = slices.Insert(ps.List, 0, &Partition{Name: "Default", PKey: DefaultPKey, Group: newGroup()})
	} else if i > 0 {
		p := ps.List[i]
		ps.List = slices.Insert(slices.Delete(ps.List, i, i+1), 0, p)
	}
	d := ps.List[0]
	if len(d.Members) == 0 {
		d.Members = []Entry{{Who: AllPorts, Membership: Limited}}
	}
	if !slices.ContainsFunc(d.Members, func(e Entry) bool { return e.Who == Self }) {
		d.Members = append(d.Members, Entry{Who: Self, Membership: Full})
	}
	return ps.onlyOneAtZero()
}

// number gives keys to the partitions that came without.
func (ps *Partitions) number() {
	used := map[ib.PKey]bool{}
	for _, p := range ps.List {
		used[p.PKey] = true
	}
	next := ib.PKey(1)
	for _, p := range ps.List {
		if p.PKey != 0 {
			continue
		}
		for used[next] {
			next++
		}
		p.PKey = next
		used[next] = true
	}
}

func (ps *Partitions) onlyOneAtZero() error {
	var first *Partition
	for _, p := range ps.List {
		if p.Index0 && first != nil {
			return fmt.Errorf("partitions %q and %q both ask for place 0 of the tables (indx0)", first.Name, p.Name)
		}
		if p.Index0 {
			first = p
		}
	}
	return nil
}

// lookup returns the partition with a key, made if need be. One without a key
// is always new.
func (ps *Partitions) lookup(name string, key ib.PKey) *Partition {
	if key != 0 {
		for _, p := range ps.List {
			if p.PKey == key {
				return p
			}
		}
	}
	p := &Partition{Name: name, PKey: key, Group: newGroup()}
	ps.List = append(ps.List, p)
	return p
}

func newGroup() Group { return Group{Rate: ib.Rate10Gbps, MTU: ib.MTU2048} }

// keyword tells what a word in a list of ports stands for.
func keyword(w string) (Port, bool) {
	switch strings.ToUpper(w) {
	case "ALL":
		return AllPorts, true
	case "ALL_CAS":
		return AllCAs, true
	case "ALL_SWITCHES":
		return AllSwitches, true
	case "ALL_ROUTERS":
		return AllRouters, true
	case "SELF":
		return Self, true
	}
	return OneGUID, false
}
