package fabric

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/urxe/urxe/ib/mad"
)

// build makes the nodes that were read, and then their links.
func (l *loader) build() error {
	made := make([]*Node, len(l.nodes))
	for i, n := range l.nodes {
		var err error
		if made[i], err = l.f.Add(n.spec); err != nil {
			return fmt.Errorf("%s: %w", n.where, err)
		}
		for _, k := range n.links {
			if err := made[i].SetLinkSpec(k.port, k.spec); err != nil {
				return fmt.Errorf("%s: %w", k.where, err)
			}
		}
	}
	for i, n := range l.nodes {
		for _, k := range n.links {
			if err := l.connect(made[i], k); err != nil {
				return fmt.Errorf("%s: %w", k.where, err)
			}
		}
	}
	for _, c := range l.do {
		if err := l.f.run(c); err != nil {
			return fmt.Errorf("%s: %w", c.where, err)
		}
	}
	return nil
}

// connect links two ports. Most links are there from both sides; the second
// must agree with the first.
func (l *loader) connect(n *Node, k netLink) error {
	far := l.f.byNameLocked(k.far)
	if far == nil {
		return fmt.Errorf("node %q is linked to %q, which is not there", n.spec.ID, k.far)
	}
	if peer, num := n.Peer(k.port); peer != nil {
		if peer != far || num != k.other {
			return fmt.Errorf("port %q[%d] is linked to %q[%d], which %q[%d] disagrees with",
				n.spec.ID, k.port, k.far, k.other, peer.spec.ID, num)
		}
		return nil
	}
	return l.f.Link(n, k.port, far, k.other)
}

func (f *Fabric) byNameLocked(id string) *Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byName[id]
}

// command is a line for ibsim's console that a netfile has.
type command struct {
	words []string
	where string
}

func (l *loader) addCommand(s string) error {
	c := command{where: l.where()}
	name, rest, _ := strings.Cut(strings.TrimSpace(s), " ")
	c.words = append(c.words, strings.ToLower(name))
	node, rest, ok := quoted(rest)
	if !ok {
		return l.errorf(`do: want a command and a node in quotes, as in: do Unlink "leaf0"[9]`)
	}
	node, err := l.nodeName(node)
	if err != nil {
		return err
	}
	num, rest, has := bracketed(rest)
	if !has {
		num = 0
	}
	rest, _, _ = strings.Cut(rest, "#")
	c.words = append(append(c.words, node, strconv.Itoa(num)), strings.Fields(rest)...)
	l.do = append(l.do, c)
	return nil
}

// run does what ibsim's console would.
func (f *Fabric) run(c command) error {
	n := f.byNameLocked(c.words[1])
	num, _ := strconv.Atoi(c.words[2])
	if n == nil {
		return fmt.Errorf("%s: no node %q", c.words[0], c.words[1])
	}
	switch c.words[0] {
	case "unlink":
		return n.eachLink(num, n.Unlink)
	case "relink":
		return n.eachLink(num, n.Relink)
	case "error":
		return f.runError(n, num, c.words[3:])
	}
	return fmt.Errorf("%q: want Unlink, ReLink or Error", c.words[0])
}

// eachLink applies do to one port, or to all that have links when num is 0.
func (n *Node) eachLink(num int, do func(int) error) error {
	if num != 0 {
		return do(num)
	}
	for i := 1; i <= n.spec.Ports; i++ {
		if peer, _ := n.Peer(i); peer != nil {
			if err := do(i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *Fabric) runError(n *Node, num int, args []string) error {
	if len(args) < 1 || len(args) > 2 {
		return fmt.Errorf(`error: want a percentage, and maybe an attribute: Error "leaf0" 20 21`)
	}
	percent, err := strconv.Atoi(args[0])
	if err != nil || percent < 0 || percent > 100 {
		return fmt.Errorf("error: want a percentage of 0 to 100, not %q", args[0])
	}
	l := Loss{Node: n, Port: num, Requests: float64(percent) / 100}
	if len(args) == 2 {
		a, err := strconv.ParseUint(args[1], 0, 16)
		if err != nil {
			return fmt.Errorf("error: attribute %q: %w", args[1], err)
		}
		l.Attr = mad.AttributeID(a)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.losses = append(f.losses, l)
	return nil
}

var kindNames = map[mad.NodeType]string{mad.NodeCA: "Ca", mad.NodeSwitch: "Switch", mad.NodeRouter: "Rt"}

var guidNames = map[mad.NodeType]string{mad.NodeCA: "caguid", mad.NodeSwitch: "switchguid", mad.NodeRouter: "rtguid"}

// WriteNet writes the fabric as a netfile that ibsim, and Load, read.
func (f *Fabric) WriteNet(w io.Writer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := bufio.NewWriter(w)
	for _, n := range f.nodes {
		fmt.Fprintf(b, "%s=0x%x\n%s\t%d \"%s\"\t\t# \"%s\"\n", guidNames[n.spec.Type], uint64(n.spec.GUID),
			kindNames[n.spec.Type], n.spec.Ports, n.spec.ID, n.description())
		for i := 1; i < len(n.ports); i++ {
			if p := &n.ports[i]; p.peer != nil {
				fmt.Fprintf(b, "[%d]\t\"%s\"[%d]%s\n", i, p.peer.node.spec.ID, p.peer.num, p.options())
			}
		}
		b.WriteByte('\n')
	}
	return b.Flush()
}

// options writes what SetLinkSpec set.
func (p *port) options() string {
	s := ""
	for _, o := range []struct {
		key string
		v   uint8
	}{{"w", p.spec.Width}, {"s", p.spec.Speed}, {"e", p.spec.SpeedExt}} {
		if o.v != 0 {
			s += fmt.Sprintf(" %s=%d", o.key, o.v)
		}
	}
	return s
}
