// Package topotest makes fabrics for tests and benchmarks: the usual shapes of
// InfiniBand networks, in any size, and the netfiles that ibsim reads. GUIDs
// are those that ibsim gives to a netfile without any, so that a fabric made
// here and the same one in the simulator are equal.
package topotest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/sm/topo"
)

type node struct {
	name  string
	sw    bool
	ports int
	links map[int]end
	away  bool
}

type end struct {
	node string
	port int
}

// Net is a fabric under construction, in netfile order: hosts first.
type Net struct {
	hosts, switches []*node
	by              map[string]*node
}

func (n *Net) add(name string, sw bool, ports int) {
	if n.by == nil {
		n.by = map[string]*node{}
	}
	x := &node{name: name, sw: sw, ports: ports, links: map[int]end{}}
	n.by[name] = x
	if sw {
		n.switches = append(n.switches, x)
	} else {
		n.hosts = append(n.hosts, x)
	}
}

// link joins two nodes; port 0 means the next free one above those in use.
func (n *Net) link(a, b string, pa, pb int) {
	x, y := n.by[a], n.by[b]
	if pa == 0 {
		pa = x.free()
	}
	x.links[pa] = end{b, pb}
	if pb == 0 {
		pb = y.free()
	}
	x.links[pa], y.links[pb] = end{b, pb}, end{a, pa}
}

func (x *node) free() int {
	p := 0
	for q := range x.links {
		p = max(p, q)
	}
	if p++; p > x.ports {
		panic(fmt.Sprintf("topotest: %s has no port left of %d", x.name, x.ports))
	}
	return p
}

func (n *Net) host(sw string) {
	h := fmt.Sprintf("h%d", len(n.hosts))
	n.add(h, false, 1)
	n.link(h, sw, 0, 0)
}

// FatTree2 is a two-level tree: every leaf is linked to every spine by links cables.
func FatTree2(leaves, spines, hosts, links int) *Net {
	n := &Net{}
	radix := max(hosts+spines*links, leaves*links)
	for i := range leaves {
		n.add(fmt.Sprintf("leaf%d", i), true, radix)
	}
	for i := range spines {
		n.add(fmt.Sprintf("spine%d", i), true, radix)
	}
	for i := range leaves {
		leaf := fmt.Sprintf("leaf%d", i)
		for range hosts {
			n.host(leaf)
		}
		for j := range spines {
			for range links {
				n.link(leaf, fmt.Sprintf("spine%d", j), 0, 0)
			}
		}
	}
	return n
}

// KFat is the three-level k-ary fat tree: k^3/4 hosts, 5k^2/4 switches of k ports.
func KFat(k int) *Net { return KFatHosts(k, k/2) }

// KFatHosts is KFat with so many hosts at each edge switch.
func KFatHosts(k, hosts int) *Net {
	n := &Net{}
	half := k / 2
	for c := range half * half {
		n.add(fmt.Sprintf("core%d", c), true, k)
	}
	for p := range k {
		agg := func(a int) string { return fmt.Sprintf("agg%d_%d", p, a) }
		edge := func(e int) string { return fmt.Sprintf("edge%d_%d", p, e) }
		for a := range half {
			n.add(agg(a), true, k)
		}
		for e := range half {
			n.add(edge(e), true, half+hosts)
		}
		for e := range half {
			for range hosts {
				n.host(edge(e))
			}
			for a := range half {
				n.link(edge(e), agg(a), 0, 0)
			}
		}
		for a := range half {
			for c := range half {
				n.link(agg(a), fmt.Sprintf("core%d", a*half+c), 0, 0)
			}
		}
	}
	return n
}

// Ring is count switches in a circle.
func Ring(count, hosts int) *Net {
	n := &Net{}
	for i := range count {
		n.add(fmt.Sprintf("sw%d", i), true, max(8, hosts+2))
	}
	for i := range count {
		n.link(fmt.Sprintf("sw%d", i), fmt.Sprintf("sw%d", (i+1)%count), 1, 2)
	}
	for i := range count {
		for range hosts {
			n.host(fmt.Sprintf("sw%d", i))
		}
	}
	return n
}

// Torus is a torus of x by y by z switches; z of 1 makes it two-dimensional.
func Torus(x, y, z, hosts int) *Net {
	n := &Net{}
	dims := 2
	if z > 1 {
		dims = 3
	}
	name := func(i, j, k int) string { return fmt.Sprintf("sw%d_%d_%d", i%x, j%y, k%z) }
	each := func(f func(i, j, k int)) {
		for k := range z {
			for j := range y {
				for i := range x {
					f(i, j, k)
				}
			}
		}
	}
	each(func(i, j, k int) { n.add(name(i, j, k), true, max(12, 2*dims+hosts)) })
	each(func(i, j, k int) {
		n.link(name(i, j, k), name(i+1, j, k), 1, 2)
		n.link(name(i, j, k), name(i, j+1, k), 3, 4)
		if z > 1 {
			n.link(name(i, j, k), name(i, j, k+1), 5, 6)
		}
	})
	each(func(i, j, k int) {
		for range hosts {
			n.host(name(i, j, k))
		}
	})
	return n
}

// Dragonfly is groups of switches, all linked to each other within a group, and
// each group to each other one by one cable.
func Dragonfly(groups, switches, hosts int) *Net {
	n := &Net{}
	name := func(g, s int) string { return fmt.Sprintf("sw%d_%d", g, s) }
	for g := range groups {
		for s := range switches {
			n.add(name(g, s), true, switches+hosts+groups)
		}
		for s := range switches {
			for o := range s {
				n.link(name(g, s), name(g, o), 0, 0)
			}
			for range hosts {
				n.host(name(g, s))
			}
		}
	}
	for a := range groups {
		for b := range a {
			n.link(name(a, b%switches), name(b, (a-1)%switches), 0, 0)
		}
	}
	return n
}

// Random is a connected random network: a random tree, then links between
// random pairs up to the mean degree. Up to 2*hosts hosts are at each switch.
func Random(switches, degree, hosts int, seed uint64) *Net {
	r := rand.New(rand.NewPCG(seed, 0))
	n := &Net{}
	name := func(i int) string { return fmt.Sprintf("sw%d", i) }
	for i := range switches {
		n.add(name(i), true, max(8, 4*degree+2*hosts))
	}
	isl := make([]int, switches)
	join := func(a, b int) {
		n.link(name(a), name(b), 0, 0)
		isl[a]++
		isl[b]++
	}
	for i := 1; i < switches; i++ {
		p := r.IntN(i)
		for isl[p] >= 3*degree {
			p = r.IntN(i)
		}
		join(i, p)
	}
	for range switches*degree/2 - (switches - 1) {
		if a, b := r.IntN(switches), r.IntN(switches); a != b && isl[a] < 3*degree && isl[b] < 3*degree {
			join(a, b)
		}
	}
	for i := range switches {
		for range r.IntN(2*hosts + 1) {
			n.host(name(i))
		}
	}
	return n
}

// Unlink takes the cable off a port, as if it had been pulled.
func (n *Net) Unlink(name string, port int) {
	x := n.by[name]
	if e, ok := x.links[port]; ok {
		delete(x.links, port)
		delete(n.by[e.node].links, e.port)
	}
}

// SetAway takes a node off the fabric, or puts it back with its links. LIDs and
// GUIDs are those of the whole fabric.
func (n *Net) SetAway(name string, away bool) { n.by[name].away = away }

// IsAway reports whether a node is off the fabric.
func (n *Net) IsAway(name string) bool { return n.by[name].away }

// Relink puts a cable between two ports.
func (n *Net) Relink(a string, pa int, b string, pb int) { n.link(a, b, pa, pb) }

// Peer returns where the cable of a port leads.
func (n *Net) Peer(name string, port int) (peer string, peerPort int) {
	e := n.by[name].links[port]
	return e.node, e.port
}

// Switches returns the names of the switches.
func (n *Net) Switches() []string {
	out := make([]string, len(n.switches))
	for i, s := range n.switches {
		out[i] = s.name
	}
	return out
}

// Hosts returns the number of hosts.
func (n *Net) Hosts() int { return len(n.hosts) }

// Ports returns the port numbers of a node that have a link.
func (n *Net) Ports(name string) (ports []int) {
	x := n.by[name]
	for p := 1; p <= x.ports; p++ {
		if _, ok := x.links[p]; ok {
			ports = append(ports, p)
		}
	}
	return ports
}

// Netfile gives the fabric in the form that ibsim reads.
func (n *Net) Netfile() string {
	var b strings.Builder
	for _, x := range n.all() {
		kind := "Hca"
		if x.sw {
			kind = "Switch"
		}
		fmt.Fprintf(&b, "%s\t%d \"%s\"\n", kind, x.ports, x.name)
		for _, p := range n.Ports(x.name) {
			fmt.Fprintf(&b, "[%d]\t\"%s\"[%d]\n", p, x.links[p].node, x.links[p].port)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (n *Net) all() []*node { return append(append([]*node(nil), n.hosts...), n.switches...) }

// Fabric gives the snapshot that a sweep of the fabric would make, with LIDs
// from 1 up in netfile order, LMC lmc on hosts, and 8 VLs on every port.
func (n *Net) Fabric(lmc uint8) *topo.Fabric {
	f := &topo.Fabric{}
	guid := map[bool]ib.GUID{true: 0x200000, false: 0x100000}
	id := map[string]int32{}
	lid := ib.LID(1)
	for _, x := range n.all() {
		typ, step, lmc := topo.CA, ib.GUID(x.ports)+1, lmc
		if x.sw {
			typ, step, lmc = topo.Switch, 1, 0
		}
		spec := topo.Node{GUID: guid[x.sw], SystemGUID: guid[x.sw], Type: typ, NumPorts: uint8(x.ports), Desc: x.name}
		guid[x.sw] += step
		if lid = (lid + 1<<lmc - 1) &^ (1<<lmc - 1); !x.away {
			i, err := f.AddNode(spec)
			must(err)
			id[x.name] = i
			number(f, i, lid, lmc)
		}
		lid += x.lids(lmc)
	}
	n.connect(f, id)
	return f
}

// lids is how many LIDs the end ports of a node take.
func (x *node) lids(lmc uint8) ib.LID {
	if x.sw {
		return 1
	}
	return ib.LID(x.ports) << lmc
}

// number gives LIDs and GUIDs to the end ports of node i.
func number(f *topo.Fabric, i int32, lid ib.LID, lmc uint8) {
	ports := f.NodePorts(i)
	for p := range ports {
		ports[p].VLs, ports[p].State, ports[p].MTU = 8, ib.PortActive, ib.MTU2048
		ports[p].GUID = f.Nodes[i].GUID
		if f.Nodes[i].Type != topo.Switch {
			ports[p].GUID += ib.GUID(p)
		}
		if !f.EndPort(f.Port(i, uint8(p))) || (p == 0) != (f.Nodes[i].Type == topo.Switch) {
			continue
		}
		ports[p].LID, ports[p].LMC = lid, lmc
		lid += 1 << lmc
	}
}

func (n *Net) connect(f *topo.Fabric, id map[string]int32) {
	for _, x := range n.all() {
		for p, e := range x.links {
			if x.away || n.by[e.node].away {
				continue
			}
			a, b := f.Port(id[x.name], uint8(p)), f.Port(id[e.node], uint8(e.port))
			if a < b {
				must(f.Connect(a, b))
			}
		}
	}
}

// Graph is the routing graph of Fabric(0).
func (n *Net) Graph() *topo.Graph { return topo.NewGraph(n.Fabric(0)) }

func must(err error) {
	if err != nil {
		panic("topotest: " + err.Error())
	}
}
