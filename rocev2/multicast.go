package rocev2

import (
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/internal/idmap"
	"github.com/urxe/urxe/rocev2/wire"
)

// The most that QPs of a Port can be attached to multicast groups, as
// ibv_device_attr names it.
const (
	MaxMcastGrp           = 2048    // groups
	MaxMcastQPAttach      = 256     // QPs of a group
	MaxTotalMcastQPAttach = 1 << 16 // QPs of all groups, each as often as it is attached
)

// What AttachMcast and DetachMcast fail for.
var (
	ErrMcastLimit  = errors.New("too many attachments to multicast groups")
	ErrNotAttached = errors.New("the QP isn't attached to the group")
)

// groups are the multicast groups that QPs of a Port are attached to (IBA 10.5).
// Workers look them up without a lock. Who changes them holds mu, also while it
// joins and leaves on the network.
type groups struct {
	mu       sync.Mutex
	byHash   idmap.Map[[]*group]
	seed     maphash.Seed
	count    atomic.Int32 // groups
	attached int          // QPs, each as often as it is attached
}

// groupKey names a group: each VLAN has groups of its own.
type groupKey struct {
	gid  ib.GID
	vlan uint16 // id; 0: none
}

func (k groupKey) String() string {
	if k.vlan == 0 {
		return k.gid.Addr().String()
	}
	return fmt.Sprintf("%v in VLAN %d", k.gid.Addr(), k.vlan)
}

// group is a multicast group and who is attached to it. It never changes:
// another takes its place. A nil group has no members.
type group struct {
	key     groupKey
	members [][]*QP // by the worker where they live
	n       int
}

// find returns the group of a key, or nil when no QP is attached to it.
func (t *groups) find(k groupKey) *group {
	if t.count.Load() == 0 {
		return nil
	}
	if list := t.byHash.Get(t.hash(k)); list != nil {
		for _, g := range *list {
			if g.key == k {
				return g
			}
		}
	}
	return nil
}

func (t *groups) hash(k groupKey) uint32 { return uint32(maphash.Comparable(t.seed, k)) }

// set makes g the group of a key; nil removes it. Under mu.
func (t *groups) set(k groupKey, g *group) {
	h := t.hash(k)
	var list []*group // of one hash, nearly always one
	if old := t.byHash.Get(h); old != nil {
		list = slices.DeleteFunc(slices.Clone(*old), func(x *group) bool { return x.key == k })
	}
	if g != nil {
		list = append(list, g)
	}
	switch {
	case len(list) == 0:
		t.byHash.Delete(h)
	case !t.byHash.Replace(h, &list):
		t.byHash.Insert(h, &list)
	}
}

// on returns the members that live on a worker.
func (g *group) on(w *Worker) []*QP {
	if g == nil {
		return nil
	}
	return g.members[w.index]
}

func (g *group) has(q *QP) bool { return slices.Contains(g.on(q.worker), q) }

// with returns g and q.
func (g *group) with(q *QP) *group { return g.change(q, append(slices.Clone(g.on(q.worker)), q), 1) }

// without returns g but for q; nil if no one is left.
func (g *group) without(q *QP) *group {
	if g.n == 1 {
		return nil
	}
	return g.change(q, slices.DeleteFunc(slices.Clone(g.on(q.worker)), func(x *QP) bool { return x == q }), -1)
}

// change returns g with other members on q's worker.
func (g *group) change(q *QP, there []*QP, more int) *group {
	c := &group{key: g.key, members: slices.Clone(g.members), n: g.n + more}
	c.members[q.worker.index] = there
	return c
}

// AttachMcast attaches the QP, which must be of type UD, to a multicast group: it
// gets a copy of each datagram to the group whose P_Key and Q_Key are its own
// (IBA 10.5). The group is that of a VLAN, or with 0 of untagged frames. With the
// first QP the Port joins it on its network. A second call changes nothing.
// Beyond the limits the error wraps ErrMcastLimit.
func (q *QP) AttachMcast(gid ib.GID, vlan uint16) error {
	k := groupKey{gid, vlan}
	err := checkMcast(q, gid)
	if err == nil {
		err = q.worker.port.attach(q, k)
	}
	if err != nil {
		return fmt.Errorf("%s: QP %v: attach to group %v: %w", q.worker.port.Name(), q.number, k, err)
	}
	return nil
}

// DetachMcast ends what AttachMcast began. No datagram to the group comes to the
// QP afterwards. With the last QP the Port leaves the group. For a QP that isn't
// attached the error wraps ErrNotAttached.
func (q *QP) DetachMcast(gid ib.GID, vlan uint16) error {
	k := groupKey{gid, vlan}
	if err := q.worker.port.detach(q, k); err != nil {
		return fmt.Errorf("%s: QP %v: detach from group %v: %w", q.worker.port.Name(), q.number, k, err)
	}
	return nil
}

func checkMcast(q *QP, gid ib.GID) error {
	switch {
	case !q.multicast:
		return errors.New("only QPs of type UD can be attached (IBA 10.5)")
	case !gid.IsMulticast():
		return errors.New("not a multicast GID: want an IPv6 one, ff00::/8, or an IPv4 one mapped, ::ffff:224.0.0.0/100")
	}
	return nil
}

func (p *Port) attach(q *QP, k groupKey) error {
	if k.vlan != 0 && !slices.Contains(p.net.VLANs(), k.vlan) {
		return fmt.Errorf("no GID of the port is in VLAN %d", k.vlan)
	}
	t := &p.groups
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.find(k)
	if g.has(q) {
		return nil
	}
	if err := t.admit(q, g); err != nil {
		return err
	}
	if g == nil {
		if err := p.net.Join(k.gid, k.vlan); err != nil {
			return fmt.Errorf("join: %w", err)
		}
		g = &group{key: k, members: make([][]*QP, len(p.workers))}
		t.count.Add(1)
	}
	t.set(k, g.with(q))
	t.attached++
	if q.groups == nil {
		q.groups = make(map[groupKey]struct{})
	}
	q.groups[k] = struct{}{}
	return nil
}

// admit says why q can't be one more member of g. Under mu.
func (t *groups) admit(q *QP, g *group) error {
	switch {
	case q.dead.Load():
		return errDestroyed
	case q.worker.closed.Load():
		return errors.New("the port is closed")
	case g == nil && t.count.Load() == MaxMcastGrp:
		return fmt.Errorf("%w: QPs of the port are in %d groups, the most (MaxMcastGrp)", ErrMcastLimit, MaxMcastGrp)
	case g != nil && g.n == MaxMcastQPAttach:
		return fmt.Errorf("%w: %d QPs of the port are in this group, the most (MaxMcastQPAttach)", ErrMcastLimit, MaxMcastQPAttach)
	case t.attached == MaxTotalMcastQPAttach:
		return fmt.Errorf("%w: %d of the port, the most (MaxTotalMcastQPAttach)", ErrMcastLimit, MaxTotalMcastQPAttach)
	}
	return nil
}

func (p *Port) detach(q *QP, k groupKey) error {
	err := p.groups.remove(p.net, q, k)
	// A Step that found the QP in the group is over then.
	q.worker.token.Lock()
	//lint:ignore SA2001 a Step runs under the token from its beginning to its end
	q.worker.token.Unlock()
	return err
}

// remove takes q out of a group, and leaves the group on n if it was the last.
func (t *groups) remove(n Net, q *QP, k groupKey) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.find(k)
	if !g.has(q) {
		return ErrNotAttached
	}
	t.attached--
	delete(q.groups, k)
	left := g.without(q)
	t.set(k, left)
	if left != nil {
		return nil
	}
	t.count.Add(-1)
	if err := n.Leave(k.gid, k.vlan); err != nil {
		return fmt.Errorf("it is detached, but the port could not leave: %w", err)
	}
	return nil
}

// detachAll detaches a QP that is destroyed, so that no group can be added.
func (q *QP) detachAll() {
	t := &q.worker.port.groups
	t.mu.Lock()
	list := slices.Collect(maps.Keys(q.groups))
	t.mu.Unlock()
	for _, k := range list {
		_ = t.remove(q.worker.port.net, q, k) // who destroys a QP can do nothing about the network
	}
}

// counts returns how many QPs are attached to which group.
func (t *groups) counts() map[string]int {
	m := make(map[string]int)
	t.byHash.Range(func(_ uint32, list *[]*group) bool {
		for _, g := range *list {
			m[g.key.String()] = g.n
		}
		return true
	})
	return m
}

// keyOf names the group that a packet is for.
func keyOf(p *wire.Packet) groupKey { return groupKey{p.DstGID(), p.VLANID()} }

// multicast gives the members of a group the current packet, which is for QP
// 0xffffff: who lives here gets a copy at once, and each other worker where some
// live a loan. It reports false when the frame was lent.
func (w *Worker) multicast(f *RxFrame, from uint8, now clock.Time) (kept bool) {
	gid := w.pkt.DstGID()
	g := w.port.groups.find(keyOf(&w.pkt))
	w.traffic.MulticastRcvd++
	if g == nil && !gid.IsMulticast() { // IBA 9.6.1
		w.traffic.MulticastCopies++
		w.judge(f, wire.DropAddress)
		return true
	}
	id, lost := w.lendToMembers(g, f, from)
	f.Verdict = wire.DropHandover
	if here := g.on(w); len(here) > 0 || id == 0 && lost == 0 {
		f.Verdict = w.copies(&w.pkt, here, from, now)
	}
	if id == 0 {
		return true
	}
	w.shares.list[id-1].verdict = f.Verdict
	return false
}

// lendToMembers lends the current packet to all other workers where members of g
// live. It returns the frame's place among the shares, 0 if no one has it, and
// how many copies were lost as there was no room to lend.
func (w *Worker) lendToMembers(g *group, f *RxFrame, from uint8) (id uint16, lost int) {
	if g == nil || g.n == len(g.on(w)) {
		return 0, 0
	}
	id = w.shares.take()
	x := &w.shares.list[id-1]
	for i, there := range g.members {
		switch {
		case i == w.index || len(there) == 0:
		case w.lend(w.port.workers[i], f, from, id):
			x.holders++
		default:
			lost += len(there)
		}
	}
	w.drops[wire.DropHandover] += uint64(lost)
	w.traffic.MulticastCopies += uint64(lost)
	if x.holders == 0 {
		w.shares.free = append(w.shares.free, id)
		return 0, lost
	}
	return id, lost
}

// copies gives each of members a copy of p, by its own checks, so that one without
// a receive takes nothing from another. Every copy has a verdict of its own, which
// is counted; copies returns Accepted if any member took one.
func (w *Worker) copies(p *wire.Packet, members []*QP, from uint8, now clock.Time) wire.Verdict {
	verdict, n := wire.DropNoMember, uint64(0)
	for _, q := range members {
		if q.dead.Load() || from == sideLoop && q.spares(p) {
			continue
		}
		v := w.deliver(q, p, now)
		w.drops[v]++
		verdict = either(verdict, v)
		n++
	}
	if n == 0 {
		w.drops[verdict]++
		n = 1
	}
	w.traffic.MulticastCopies += n
	return verdict
}

// either is the verdict of a frame of two copies.
func either(v, x wire.Verdict) wire.Verdict {
	if v == wire.Accepted {
		return v
	}
	return x
}

// spares reports whether q doesn't want p, of this Port, since q itself sent it.
func (q *QP) spares(p *wire.Packet) bool { return q.blockSelf && p.SrcQP == q.number }

// reserveCopy sees that a frame of the loop is there for a copy of q's next
// packet, if that may go to a group with members on this port.
func (w *Worker) reserveCopy(q *QP, n int) bool {
	if !q.multicast || w.copy.room >= n || w.port.groups.count.Load() == 0 {
		return true
	}
	w.cancelCopy()
	if !w.sides[sideLoop].link.Reserve(&w.copy.frame, n) {
		w.starve()
		return false
	}
	w.copy.room = n
	return true
}

func (w *Worker) cancelCopy() {
	if w.copy.room > 0 {
		w.sides[sideLoop].link.Cancel(&w.copy.frame)
		w.copy.room = 0
	}
}

// addCopy gives the packet of slot, which goes to a group, its copy for the
// members on this port, if there are any. One that was attached since the frame
// was reserved may miss it.
func (w *Worker) addCopy(slot *planned) {
	w.traffic.MulticastSent++
	g := w.port.groups.find(groupKey{slot.pkt.Path.DstGID(), slot.pkt.Path.VLAN()})
	if g == nil || w.copy.room == 0 || g.n == 1 && slot.q.blockSelf && g.has(slot.q) {
		return
	}
	slot.copy, slot.copied = w.copy.frame, true
	w.copy.room = 0
}

// endCopy sends the copy of a packet, or drops it with the packet.
func (w *Worker) endCopy(slot *planned) {
	if !slot.copied {
		return
	}
	slot.copied = false
	loop := &w.sides[sideLoop]
	if slot.pkt.Void {
		loop.link.Cancel(&slot.copy)
		return
	}
	slot.copy.Copy(&slot.frame.Frame)
	loop.link.Send(&slot.copy)
	loop.used = true
}
