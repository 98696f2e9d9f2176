package route

import "github.com/urxe/urxe/sm/topo"

// maxReliefs bounds the moves that relieve makes: each searches all LIDs once.
const maxReliefs = 256

// relieve lowers the load of the busiest link path by path: passes move whole
// trees, and get stuck where no tree as a whole is better elsewhere.
func (b *balancer) relieve(t *Tables, d *dag, fill func(*dag, int32)) {
	r := &reliever{balancer: b, t: t, d: d, uses: make([]bool, b.g.Switches()), mark: make([]bool, b.g.Switches())}
	for range maxReliefs {
		if !r.once(fill) {
			return
		}
	}
}

type reliever struct {
	*balancer
	t    *Tables
	d    *dag
	busy int32  // the busiest link
	uses []bool // by switch: its path to the LID in hand goes over busy
	mark []bool // by switch: on the path that a move leaves
}

func (r *reliever) once(fill func(*dag, int32)) bool {
	if len(r.load) == 0 {
		return false
	}
	r.busy = 0
	for e := range r.load {
		if r.load[e] > r.load[r.busy] {
			r.busy = int32(e)
		}
	}
	for sw := range int32(r.g.Switches()) {
		if sw == r.g.From[r.busy] {
			continue
		}
		fill(r.d, sw)
		for _, i := range r.g.At(sw) {
			if dest := r.g.Dests[i]; dest.IsHost() && r.t.Next(r.g.From[r.busy], dest.LID) == r.busy && r.move(dest) {
				return true
			}
		}
	}
	return false
}

// move finds a switch whose paths to dest can leave the busy link without
// making another as busy, and moves them.
func (r *reliever) move(dest topo.Dest) bool {
	r.uses[dest.Switch], r.flow[dest.Switch] = false, 0
	for _, s := range r.d.order[1:] {
		e := r.t.Next(s, dest.LID)
		r.pick[s], r.flow[s] = e, int64(r.g.Hosts[s])
		r.uses[s] = e == r.busy || r.uses[r.g.To[e]]
	}
	for i := len(r.d.order) - 1; i > 0; i-- {
		s := r.d.order[i]
		r.flow[r.g.To[r.pick[s]]] += r.flow[s]
	}
	r.pick[dest.Switch] = topo.None
	for _, s := range r.d.order[1:] {
		if r.uses[s] && r.flow[s] > 0 && r.moveAt(s, dest) {
			return true
		}
	}
	return false
}

func (r *reliever) moveAt(s int32, dest topo.Dest) bool {
	r.trail(s, true)
	defer r.trail(s, false)
	delta := r.flow[s] * hostFlow
	for _, e := range r.d.links(s) {
		if r.uses[r.g.To[e]] || e == r.busy || !r.room(e, delta) {
			continue
		}
		r.shift(r.pick[s], dest.Switch, -delta, e)
		r.shift(e, dest.Switch, delta, r.pick[s])
		r.t.LFT[s][dest.LID] = r.g.Port[e]
		return true
	}
	return false
}

// trail marks the switches behind s on its path.
func (r *reliever) trail(s int32, on bool) {
	for e := r.pick[s]; e != topo.None; e = r.pick[r.g.To[e]] {
		r.mark[r.g.To[e]] = on
	}
}

// room reports whether the path over e can carry delta more up to where it
// meets the old path, and stay below the busiest link.
func (r *reliever) room(e int32, delta int64) bool {
	for ; e != topo.None; e = r.pick[r.g.To[e]] {
		if r.load[e]+delta >= r.load[r.busy] {
			return false
		}
		if r.mark[r.g.To[e]] {
			break
		}
	}
	return true
}

// shift adds delta to the path over e up to where it meets that over other.
func (r *reliever) shift(e, dst int32, delta int64, other int32) {
	met := r.meet(e, other)
	for {
		r.load[e] += delta
		if r.g.To[e] == met || r.g.To[e] == dst {
			return
		}
		e = r.pick[r.g.To[e]]
	}
}

// meet returns the first switch behind a that also lies behind b.
func (r *reliever) meet(a, b int32) int32 {
	for ; a != topo.None; a = r.pick[r.g.To[a]] {
		for c := b; c != topo.None; c = r.pick[r.g.To[c]] {
			if r.g.To[a] == r.g.To[c] {
				return r.g.To[a]
			}
		}
	}
	return topo.None
}
