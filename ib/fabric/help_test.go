package fabric

import (
	"errors"
	"fmt"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
)

// agent is an endpoint that keeps what arrives.
type agent struct {
	t   testing.TB
	end *Endpoint
	got []mad.Packet
	tid uint64
}

func attach(t testing.TB, f *Fabric, node string, num int) *agent {
	t.Helper()
	a := &agent{t: t}
	n := f.Node(node)
	if n == nil {
		t.Fatalf("no node %q", node)
	}
	end, err := f.Attach(n, num, func(p *mad.Packet) { a.got = append(a.got, *p) })
	if err != nil {
		t.Fatal(err)
	}
	a.end = end
	return a
}

var errLost = errors.New("lost")

// call sends p and returns its answer.
func (a *agent) call(p *mad.Packet) (mad.MAD, error) {
	a.t.Helper()
	a.tid++
	p.MAD().SetTID(a.tid)
	before := len(a.got)
	if err := a.end.Inject(p); err != nil {
		return nil, err
	}
	for i := before; i < len(a.got); i++ {
		if g := &a.got[i]; g.Key() == p.Key() && g.MAD().IsResponse() {
			m := append(mad.MAD(nil), g.MAD()...)
			a.got = append(a.got[:i], a.got[i+1:]...)
			if m.Status() != mad.StatusOK {
				return m, fmt.Errorf("%v", m.Status())
			}
			return m, nil
		}
	}
	return nil, errLost
}

func (a *agent) direct(method mad.Method, attr mad.AttributeID, mod uint32, path []byte, data []byte) (mad.MAD, error) {
	a.t.Helper()
	p := &mad.Packet{Addr: mad.Direct}
	if err := p.MAD().InitSMP(method, attr, mod, path); err != nil {
		a.t.Fatal(err)
	}
	copy(p.MAD().Data(), data)
	return a.call(p)
}

func (a *agent) get(attr mad.AttributeID, mod uint32, path ...byte) mad.MAD {
	a.t.Helper()
	m, err := a.direct(mad.MethodGet, attr, mod, path, nil)
	if err != nil {
		a.t.Fatalf("Get of attribute 0x%x, modifier 0x%x at %v: %v", uint16(attr), mod, path, err)
	}
	return m
}

func (a *agent) set(attr mad.AttributeID, mod uint32, data []byte, path ...byte) mad.MAD {
	a.t.Helper()
	m, err := a.direct(mad.MethodSet, attr, mod, path, data)
	if err != nil {
		a.t.Fatalf("Set of attribute 0x%x, modifier 0x%x at %v: %v", uint16(attr), mod, path, err)
	}
	return m
}

// to sends a MAD of a class to a LID.
func (a *agent) to(lid ib.LID, class mad.Class, method mad.Method, attr mad.AttributeID, mod uint32, data []byte) (mad.MAD, error) {
	a.t.Helper()
	p := &mad.Packet{Addr: mad.Addr{LID: lid, QPN: class.QPN()}}
	p.MAD().Init(class, method, attr, mod)
	copy(p.MAD().Data(), data)
	return a.call(p)
}

// paths finds a shortest directed route from the agent to every node.
func (a *agent) paths() map[*Node][]byte {
	found := map[*Node][]byte{a.end.at.node: {}}
	queue := []*Node{a.end.at.node}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		if !n.isSwitch() && len(found[n]) > 0 {
			continue
		}
		for i := 1; i <= n.NumPorts(); i++ {
			peer, _ := n.Peer(i)
			if peer == nil || found[peer] != nil || n.Info(i).PortState() == ib.PortDown {
				continue
			}
			found[peer] = append(append([]byte{}, found[n]...), byte(i))
			queue = append(queue, peer)
		}
	}
	return found
}

// bringUp is a tiny subnet manager: LIDs by the order of nodes from 1 on,
// shortest paths, all ports active. It returns the LID of each node.
func bringUp(a *agent) map[*Node]ib.LID {
	a.t.Helper()
	f, paths := a.end.f, a.paths()
	if err := a.end.SetSM(true); err != nil {
		a.t.Fatal(err)
	}
	lids := map[*Node]ib.LID{}
	for _, n := range f.Nodes() {
		if paths[n] != nil {
			lids[n] = ib.LID(len(lids) + 1)
		}
	}
	for n, lid := range lids {
		num := uint32(0)
		if !n.isSwitch() {
			num = 1
		}
		pi := mad.PortInfo(a.get(mad.AttrPortInfo, num, paths[n]...).Data())
		pi.SetLID(lid)
		pi.SetMasterSMLID(lids[a.end.at.node])
		pi.SetPortState(ib.PortNop)
		pi.SetPortPhysicalState(mad.PhysNop)
		a.set(mad.AttrPortInfo, num, pi, paths[n]...)
		if n.isSwitch() {
			a.program(n, paths[n], lids)
		}
	}
	for _, state := range []ib.PortState{ib.PortArmed, ib.PortActive} {
		for n := range lids {
			a.activate(n, paths[n], state)
		}
	}
	return lids
}

// program sets the forwarding table of a switch.
func (a *agent) program(n *Node, path []byte, lids map[*Node]ib.LID) {
	a.t.Helper()
	si := mad.SwitchInfo(a.get(mad.AttrSwitchInfo, 0, path...).Data())
	si.SetLinearFDBTop(uint16(len(lids)))
	si.SetPortStateChange(true)
	a.set(mad.AttrSwitchInfo, 0, si, path...)
	lft := make([]byte, (len(lids)/64+1)*64)
	for i := range lft {
		lft[i] = noPort
	}
	lft[lids[n]] = 0
	first := map[*Node]byte{n: 0}
	queue := []*Node{n}
	for len(queue) > 0 {
		x := queue[0]
		queue = queue[1:]
		if !x.isSwitch() {
			continue
		}
		for i := 1; i <= x.NumPorts(); i++ {
			peer, _ := x.Peer(i)
			if _, seen := first[peer]; peer == nil || seen {
				continue
			}
			first[peer] = first[x]
			if x == n {
				first[peer] = byte(i)
			}
			lft[lids[peer]] = first[peer]
			queue = append(queue, peer)
		}
	}
	for b := range len(lft) / 64 {
		a.set(mad.AttrLinearFT, uint32(b), lft[b*64:b*64+64], path...)
	}
}

func (a *agent) activate(n *Node, path []byte, state ib.PortState) {
	a.t.Helper()
	for i := 1; i <= n.NumPorts(); i++ {
		if pi := n.Info(i); pi.PortState() == ib.PortDown || pi.PortState() >= state {
			continue
		}
		pi := mad.PortInfo(a.get(mad.AttrPortInfo, uint32(i), path...).Data())
		pi.SetPortState(state)
		pi.SetPortPhysicalState(mad.PhysNop)
		a.set(mad.AttrPortInfo, uint32(i), pi, path...)
	}
}

func load(t testing.TB, file string) *Fabric {
	t.Helper()
	f := New(Defaults{})
	if err := f.Load("testdata/" + file); err != nil {
		t.Fatal(err)
	}
	return f
}
