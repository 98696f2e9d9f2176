package fabric

import (
	"fmt"

	"github.com/urxe/urxe/ib/mad"
)

// The builders below add a well-known topology to a fabric. Hosts are "h0",
// "h1" and so on, one port each, and come before the switches.

// builder adds nodes and links; its first error stops it.
type builder struct {
	f    *Fabric
	next map[*Node]int // The last port that has a link.
	err  error
}

func (f *Fabric) builder() *builder { return &builder{f: f, next: map[*Node]int{}} }

func (b *builder) add(typ mad.NodeType, ports int, format string, args ...any) *Node {
	if b.err != nil {
		return nil
	}
	var n *Node
	n, b.err = b.f.Add(NodeSpec{ID: fmt.Sprintf(format, args...), Type: typ, Ports: ports})
	return n
}

func (b *builder) host(i int) *Node { return b.add(mad.NodeCA, 1, "h%d", i) }

// link connects the next free ports of two nodes.
func (b *builder) link(x, y *Node) {
	if b.err == nil {
		b.next[x]++
		b.next[y]++
		b.err = b.f.Link(x, b.next[x], y, b.next[y])
	}
}

func (b *builder) linkAt(x *Node, xPort int, y *Node, yPort int) {
	if b.err == nil {
		b.err = b.f.Link(x, xPort, y, yPort)
		b.next[x], b.next[y] = max(b.next[x], xPort), max(b.next[y], yPort)
	}
}

func (b *builder) hosts(n int) []*Node {
	hs := make([]*Node, n)
	for i := range hs {
		hs[i] = b.host(i)
	}
	return hs
}

// BuildTree adds a tree of two levels: each leaf has hosts hosts and links
// links to each spine.
func (f *Fabric) BuildTree(leaves, spines, hosts, links int) error {
	b := f.builder()
	hs := b.hosts(leaves * hosts)
	radix := max(hosts+spines*links, leaves*links)
	leaf, spine := make([]*Node, leaves), make([]*Node, spines)
	for i := range leaf {
		leaf[i] = b.add(mad.NodeSwitch, radix, "leaf%d", i)
	}
	for i := range spine {
		spine[i] = b.add(mad.NodeSwitch, radix, "spine%d", i)
	}
	for i, l := range leaf {
		for h := range hosts {
			b.link(hs[i*hosts+h], l)
		}
		for _, s := range spine {
			for range links {
				b.link(l, s)
			}
		}
	}
	return b.err
}

// BuildFatTree adds a tree of three levels of switches of k ports, k even: k³/4
// hosts, 5k²/4 switches.
func (f *Fabric) BuildFatTree(k int) error {
	if k < 2 || k%2 != 0 {
		return fmt.Errorf("fabric: fat tree of switches of %d ports: want an even number", k)
	}
	b, half := f.builder(), k/2
	hs := b.hosts(k * half * half)
	core := make([]*Node, half*half)
	for i := range core {
		core[i] = b.add(mad.NodeSwitch, k, "core%d", i)
	}
	for p := range k {
		b.pod(p, half, core, hs[p*half*half:])
	}
	return b.err
}

func (b *builder) pod(p, half int, core, hs []*Node) {
	agg, edge := make([]*Node, half), make([]*Node, half)
	for i := range half {
		agg[i] = b.add(mad.NodeSwitch, 2*half, "agg%d_%d", p, i)
	}
	for i := range half {
		edge[i] = b.add(mad.NodeSwitch, 2*half, "edge%d_%d", p, i)
	}
	for i, e := range edge {
		for h := range half {
			b.link(hs[i*half+h], e)
		}
		for _, a := range agg {
			b.link(e, a)
		}
	}
	for i, a := range agg {
		for c := range half {
			b.link(a, core[i*half+c])
		}
	}
}

// BuildTorus adds a torus of one to three dimensions; one is a ring. Each
// switch has hosts hosts. Dimension d goes up by port 2d+1 and down by 2d+2.
func (f *Fabric) BuildTorus(hosts int, dims ...int) error {
	if len(dims) < 1 || len(dims) > 3 {
		return fmt.Errorf("fabric: torus of %d dimensions: want 1 to 3", len(dims))
	}
	b, total := f.builder(), 1
	for _, d := range dims {
		if d < 2 {
			return fmt.Errorf("fabric: torus of %v: want at least 2 switches in each dimension", dims)
		}
		total *= d
	}
	hs := b.hosts(total * hosts)
	sw := make([]*Node, total)
	for i := range sw {
		sw[i] = b.add(mad.NodeSwitch, max(8, 2*len(dims)+hosts), "sw%s", torusName(i, dims))
	}
	for i, s := range sw {
		stride := 1
		for d, n := range dims {
			up := i - i/stride%n*stride + (i/stride+1)%n*stride
			b.linkAt(s, 2*d+1, sw[up], 2*d+2)
			stride *= n
		}
	}
	for i, s := range sw {
		b.next[s] = max(b.next[s], 2*len(dims))
		for h := range hosts {
			b.link(hs[i*hosts+h], s)
		}
	}
	return b.err
}

func torusName(i int, dims []int) string {
	s := ""
	for d, n := range dims {
		if d > 0 {
			s += "_"
		}
		s += fmt.Sprint(i % n)
		i /= n
	}
	return s
}
