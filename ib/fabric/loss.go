package fabric

import "github.com/urxe/urxe/ib/mad"

// Loss makes MADs get lost at a node.
type Loss struct {
	Node *Node // nil is every node.
	Port int   // Of the node, by which a MAD comes in; 0 is every port.
	Attr mad.AttributeID
	// Requests and Answers are the chances, 0 to 1, that a request is lost
	// before the node sees it, and that its answer is lost after. Attr, unless
	// 0, limits both to one attribute.
	Requests, Answers float64
}

// SetLosses replaces what is lost; none without arguments. Chances follow Seed.
func (f *Fabric) SetLosses(l ...Loss) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.losses = append([]Loss(nil), l...)
}

// loses draws whether m, which came to n by port in, is lost.
func (f *Fabric) loses(n *Node, in uint8, m mad.MAD, answer bool) bool {
	for i := range f.losses {
		l := &f.losses[i]
		if l.Node != nil && l.Node != n || l.Port != 0 && l.Port != int(in) || l.Attr != 0 && l.Attr != m.Attribute() {
			continue
		}
		chance := l.Requests
		if answer {
			chance = l.Answers
		}
		if chance > 0 && f.rng.Float64() < chance {
			f.stats.Lost++
			return true
		}
	}
	return false
}
