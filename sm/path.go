package sm

import (
	"container/heap"
	"time"

	"github.com/urxe/urxe/internal/clock"
)

// suspicion is how many hops of a way around a node are worth while, for each
// request that got lost on a way through it.
const suspicion = 4

// along calls f for each node that a directed route passes through, its end not
// included.
func (m *Manager) along(path []byte, f func(*node)) {
	if m.self == nil {
		return
	}
	n := m.self.n
	for _, num := range path {
		if n != m.self.n {
			f(n)
		}
		p := n.port(num)
		if p == nil || p.peer == nil {
			return
		}
		n = p.peer.n
	}
}

// doubt counts a request that got lost along a path against the nodes on it.
func (m *Manager) doubt(path []byte) {
	m.along(path, func(n *node) { m.suspects[n]++ })
}

// trust clears those on a path that worked.
func (m *Manager) trust(path []byte) {
	if len(m.suspects) > 0 {
		m.along(path, func(n *node) { delete(m.suspects, n) })
	}
}

// step is a node that ways finds, and what the way there costs.
type step struct {
	n    *node
	cost int
	seq  int // keeps the order of equal ones
}

type stepHeap []step

func (h stepHeap) Len() int { return len(h) }
func (h stepHeap) Less(i, j int) bool {
	return h[i].cost < h[j].cost || h[i].cost == h[j].cost && h[i].seq < h[j].seq
}
func (h stepHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *stepHeap) Push(x any)   { *h = append(*h, x.(step)) }
func (h *stepHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// ways calls visit for each node that can be reached over known links, nearest
// first, with the port that the best way comes from; nodes that lost requests
// are gone around where that is possible.
func (m *Manager) ways(visit func(n *node, by *port)) {
	done := map[*node]bool{}
	by := map[*node]*port{}
	cost := map[*node]int{m.self.n: 0}
	h := stepHeap{{n: m.self.n}}
	for seq := 1; len(h) > 0; {
		s := heap.Pop(&h).(step)
		if done[s.n] {
			continue
		}
		done[s.n] = true
		visit(s.n, by[s.n])
		if s.n != m.self.n && !s.n.isSwitch() {
			continue // CAs forward nothing
		}
		for i := range s.n.ports {
			p := &s.n.ports[i]
			if p.peer == nil || done[p.peer.n] || !s.n.isSwitch() && p != m.self {
				continue
			}
			c := s.cost + 1 + suspicion*m.suspects[p.peer.n]
			if old, known := cost[p.peer.n]; !known || c < old {
				cost[p.peer.n], by[p.peer.n] = c, p
				heap.Push(&h, step{p.peer.n, c, seq})
				seq++
			}
		}
	}
}

// rerouteEvery bounds how often the ways of a large subnet are looked for anew:
// where many packets get lost, that would be all there is time for.
const (
	rerouteEvery = 25 * time.Millisecond
	largeSubnet  = 500 // nodes
)

// reroute gives all nodes the best ways there are now.
func (m *Manager) reroute(now clock.Time) {
	if m.self == nil || len(m.nodes) > largeSubnet && now.Sub(m.rerouted) < rerouteEvery {
		return
	}
	m.rerouted = now
	path := map[*node][]byte{}
	m.ways(func(n *node, by *port) {
		path[n] = extend(path, by)
		n.path, n.seen = path[n], now
	})
}

// cutOff reports whether the last look for ways found none to n. While all is
// found anew that means nothing.
func (m *Manager) cutOff(n *node) bool { return !m.heavy && m.rerouted > 0 && n.seen < m.rerouted }

func extend(path map[*node][]byte, by *port) []byte {
	if by == nil {
		return nil
	}
	before := path[by.n]
	return append(before[:len(before):len(before)], by.num)
}
