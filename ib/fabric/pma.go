package fabric

import (
	"fmt"

	"github.com/urxe/urxe/ib/mad"
)

// counter is one of a port's counters, whatever attribute shows it.
type counter int

const (
	symbolErrorCounter counter = iota
	linkErrorRecoveryCounter
	linkDownedCounter
	portRcvErrors
	portRcvRemotePhysicalErrors
	portRcvSwitchRelayErrors
	portXmitDiscards
	portXmitConstraintErrors
	portRcvConstraintErrors
	localLinkIntegrityErrors
	excessiveBufferOverrunErrors
	vl15Dropped
	portXmitData
	portRcvData
	portXmitPkts
	portRcvPkts
	portXmitWait
	portUnicastXmitPkts
	portUnicastRcvPkts
	portMulticastXmitPkts
	portMulticastRcvPkts
	qp1Dropped
	numPlain // Those of PortCounters and PortCountersExtended.
)

// counters are those of a port, beside them the ones of rarer attributes, by
// attribute and name, once one was set.
type counters struct {
	plain [numPlain]uint64
	rare  map[rareCounter]uint64
}

type rareCounter struct {
	attr  mad.AttributeID
	name  string
	index int
}

// plainNames are the fields that show a plain counter.
var plainNames = map[string]counter{
	"SymbolErrorCounter": symbolErrorCounter, "LinkErrorRecoveryCounter": linkErrorRecoveryCounter,
	"LinkDownedCounter": linkDownedCounter, "PortRcvErrors": portRcvErrors,
	"PortRcvRemotePhysicalErrors": portRcvRemotePhysicalErrors, "PortRcvSwitchRelayErrors": portRcvSwitchRelayErrors,
	"PortXmitDiscards": portXmitDiscards, "PortXmitConstraintErrors": portXmitConstraintErrors,
	"PortRcvConstraintErrors": portRcvConstraintErrors, "LocalLinkIntegrityErrors": localLinkIntegrityErrors,
	"ExcessiveBufferOverrunErrors": excessiveBufferOverrunErrors, "VL15Dropped": vl15Dropped,
	"PortXmitData": portXmitData, "PortRcvData": portRcvData, "PortXmitPkts": portXmitPkts, "PortRcvPkts": portRcvPkts,
	"PortXmitWait": portXmitWait, "PortUnicastXmitPkts": portUnicastXmitPkts, "PortUnicastRcvPkts": portUnicastRcvPkts,
	"PortMulticastXmitPkts": portMulticastXmitPkts, "PortMulticastRcvPkts": portMulticastRcvPkts, "QP1Dropped": qp1Dropped,
}

// hopWords is what a MAD adds to the data counters: 256 bytes and their
// headers, in words of four.
const hopWords = 72

func (p *port) count(c counter, n uint64) {
	if n == 0 || p == nil {
		return
	}
	p.ownCounters().plain[c] += n
}

func (p *port) ownCounters() *counters {
	if p.counters == nil {
		p.counters = &counters{}
	}
	return p.counters
}

// countHop counts a MAD that crosses the link from p to q.
func (p *port) countHop(q *port) {
	x, r := &p.ownCounters().plain, &q.ownCounters().plain
	x[portXmitData] += hopWords
	x[portXmitPkts]++
	x[portUnicastXmitPkts]++
	r[portRcvData] += hopWords
	r[portRcvPkts]++
	r[portUnicastRcvPkts]++
}

// perfViews are the attributes of performance management and what overlays them.
var perfViews = map[mad.AttributeID]*mad.Layout{
	mad.AttrPortCounters:                  mad.PortCounters(nil).Layout(),
	mad.AttrPortCountersExtended:          mad.PortCountersExtended(nil).Layout(),
	mad.AttrPortRcvErrorDetails:           mad.PortRcvErrorDetails(nil).Layout(),
	mad.AttrPortXmitDiscardDetails:        mad.PortXmitDiscardDetails(nil).Layout(),
	mad.AttrPortOpRcvCounters:             mad.PortOpRcvCounters(nil).Layout(),
	mad.AttrPortFlowCtlCounters:           mad.PortFlowCtlCounters(nil).Layout(),
	mad.AttrPortVLOpPackets:               mad.PortVLOpPackets(nil).Layout(),
	mad.AttrPortVLOpData:                  mad.PortVLOpData(nil).Layout(),
	mad.AttrPortVLXmitFlowCtlUpdateErrors: mad.PortVLXmitFlowCtlUpdateErrors(nil).Layout(),
	mad.AttrPortVLXmitWaitCounters:        mad.PortVLXmitWaitCounters(nil).Layout(),
}

// What ClassPortInfo of performance management says: all ports may be selected
// at once, and there are extended counters, PortXmitWait, and more of the latter.
const (
	perfAllPortSelect     = 1 << 8
	perfExtendedWidth     = 1 << 9
	perfXmitWait          = 1 << 12
	perfAdditionalCounter = 1 << 1 // Of CapabilityMask2.
	perfRespTime          = 18
)

// perf gets or sets an attribute of performance management (IBA 16.1).
func (n *Node) perf(m mad.MAD, set bool) mad.Status {
	d := m.Data()
	if m.Attribute() == mad.AttrClassPortInfo && !set {
		clear(d)
		v := mad.ClassPortInfo(d)
		v.SetBaseVersion(1)
		v.SetClassVersion(1)
		v.SetCapabilityMask(perfAllPortSelect | perfExtendedWidth | perfXmitWait)
		v.SetCapabilityMask2(perfAdditionalCounter)
		v.SetRespTimeValue(perfRespTime)
		return mad.StatusOK
	}
	l := perfViews[m.Attribute()]
	if l == nil {
		return mad.StatusUnsupportedAttribute
	}
	ports := n.selected(d[1])
	if ports == nil {
		return mad.StatusInvalidField
	}
	if set {
		for i := range ports {
			ports[i].setCounters(m.Attribute(), l, d)
		}
	}
	showCounters(ports, m.Attribute(), l, d)
	return mad.StatusOK
}

// selected returns the ports that a PortSelect means: one, or all with 255.
func (n *Node) selected(num uint8) []port {
	first := 1
	if n.isSwitch() {
		first = 0
	}
	switch {
	case num == 255:
		return n.ports[first:]
	case int(num) >= len(n.ports) || int(num) < first:
		return nil
	}
	return n.ports[num : num+1]
}

// showCounters writes the sum of a counter over all selected ports to each
// field; what is too much for a field stays at its maximum (IBA 16.1.3.5).
func showCounters(ports []port, attr mad.AttributeID, l *mad.Layout, d []byte) {
	for _, f := range l.Fields {
		if !isCounter(f.Name) {
			continue
		}
		for i := range f.Count {
			var sum uint64
			for k := range ports {
				sum += ports[k].counter(attr, f.Name, i)
			}
			f.Set(d, i, min(sum, 1<<(f.Bits-1)*2-1))
		}
	}
}

func isCounter(name string) bool {
	switch name {
	case "", "PortSelect", "CounterSelect", "CounterSelect2", "OpCode":
		return false
	}
	return true
}

func (p *port) counter(attr mad.AttributeID, name string, i int) uint64 {
	if p.counters == nil {
		return 0
	}
	if c, ok := plainNames[name]; ok {
		return p.counters.plain[c]
	}
	return p.counters.rare[rareCounter{attr, name, i}]
}

func (p *port) setCounter(attr mad.AttributeID, name string, i int, v uint64) {
	c := p.ownCounters()
	if k, ok := plainNames[name]; ok {
		c.plain[k] = v
		return
	}
	if c.rare == nil {
		c.rare = map[rareCounter]uint64{}
	}
	c.rare[rareCounter{attr, name, i}] = v
}

// setCounters sets the counters that the request selects.
func (p *port) setCounters(attr mad.AttributeID, l *mad.Layout, d []byte) {
	for _, f := range l.Fields {
		if !isCounter(f.Name) {
			continue
		}
		for i := range f.Count {
			if selects(attr, l, f.Name, i, d) {
				p.setCounter(attr, f.Name, i, f.Get(d, i))
			}
		}
	}
}

// selects reports whether CounterSelect or CounterSelect2 has the bit of a
// counter. Those of PortCounters are numbered like ours, and those of
// PortCountersExtended in two words (IBA 16.1.3.5, 16.1.4.11); the rest in the
// order of the fields.
func selects(attr mad.AttributeID, l *mad.Layout, name string, i int, d []byte) bool {
	word, bit := "CounterSelect", 0
	c := plainNames[name]
	switch attr {
	case mad.AttrPortCounters:
		bit = int(c)
		if c >= portXmitWait {
			word, bit = "CounterSelect2", int(min(c-portXmitWait, 1))
		}
	case mad.AttrPortCountersExtended:
		word, bit = extendedBit(c)
	default:
		bit = i + before(l, name)
	}
	for _, f := range l.Fields {
		if f.Name == word {
			return f.Get(d, 0)>>bit&1 != 0
		}
	}
	return false
}

func extendedBit(c counter) (word string, bit int) {
	switch {
	case c <= vl15Dropped:
		return "CounterSelect2", int(c)
	case c <= portRcvPkts:
		return "CounterSelect", int(c - portXmitData)
	case c == portXmitWait:
		return "CounterSelect2", 12
	case c == qp1Dropped:
		return "CounterSelect2", 13
	}
	return "CounterSelect", 4 + int(c-portUnicastXmitPkts)
}

// before returns how many counters of a layout lie before one.
func before(l *mad.Layout, name string) int {
	n := 0
	for _, f := range l.Fields {
		switch {
		case f.Name == name:
			return n
		case isCounter(f.Name):
			n += f.Count
		}
	}
	return n
}

// SetCounter sets a counter of a port by the name that package mad gives it:
// "PortXmitWait" of any attribute, or "Wait" 3 of PortVLXmitWaitCounters.
func (n *Node) SetCounter(num int, attr mad.AttributeID, name string, i int, v uint64) error {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	p := n.port(num)
	if p == nil {
		return fmt.Errorf("fabric: node %q has no port %d", n.spec.ID, num)
	}
	if l := perfViews[attr]; l != nil {
		for _, f := range l.Fields {
			if f.Name == name && isCounter(name) && i >= 0 && i < f.Count {
				p.setCounter(attr, name, i, v)
				return nil
			}
		}
	}
	return fmt.Errorf("fabric: attribute 0x%04x has no counter %s %d", uint16(attr), name, i)
}
