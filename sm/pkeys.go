package sm

import (
	"bytes"
	"slices"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
)

const pkeysPerBlock = 32

// setPKeys writes the P_Key table of an end port, or of a switch port that
// enforces partitions, where it is to be another.
func (m *Manager) setPKeys(p *port) {
	keys := m.keysOf(p)
	if !p.end() {
		keys, _ = m.enforced(p)
	}
	if keys == nil || p.pkeys != nil && slices.Equal(keys, p.pkeys) {
		return
	}
	mod := uint32(p.num) << 16
	for b := 0; b*pkeysPerBlock < max(1, len(keys)); b++ {
		t := make(mad.PKeyTable, mad.SMPDataSize)
		for i, k := range keys[b*pkeysPerBlock : min(len(keys), (b+1)*pkeysPerBlock)] {
			t.SetPKey(i, k)
		}
		m.set(p.n, mad.AttrPKeyTable, mod|uint32(b), t, p, (*Manager).didPKeys)
	}
	p.pkeys = keys
}

// keysOf returns the table that an end port is to have; nil leaves its own.
func (m *Manager) keysOf(p *port) []ib.PKey {
	if m.cfg.PKeys == nil || !p.end() {
		return nil
	}
	keys := m.cfg.PKeys(Member{GUID: p.guid, Type: uint8(p.n.info.NodeType()), Self: p == m.self})
	if limit := int(p.n.info.PartitionCap()); limit > 0 && len(keys) > limit {
		m.errorf("6023", "configure", "%s can hold %d P_Keys of the %d it is to have", p.name(), limit, len(keys))
		keys = keys[:limit]
	}
	return keys
}

func (m *Manager) didPKeys(r *request, a mad.MAD) {
	if a == nil || !bytes.Equal(a.Data(), r.data) {
		r.port.pkeys = nil
		m.problem("the P_Keys of " + r.port.name() + " are not set")
	}
}

// enforced returns what a switch port is to enforce, and by which table: that
// of the end port it is linked to. Links between switches enforce nothing.
func (m *Manager) enforced(p *port) (keys []ib.PKey, how Enforce) {
	if m.cfg.Enforce == 0 || p.end() || p.peer == nil || p.peer.n.isSwitch() || p.n.sw == nil {
		return nil, 0
	}
	if p.n.sw.InboundEnforcementCap() {
		how |= EnforceIn
	}
	if p.n.sw.OutboundEnforcementCap() {
		how |= EnforceOut
	}
	keys, how = m.keysOf(p.peer), how&m.cfg.Enforce
	limit := int(p.n.sw.PartitionEnforcementCap())
	switch {
	case keys == nil || how == 0 || limit == 0:
		return nil, 0
	case len(keys) > limit:
		m.errorf("6024", "configure", "%s enforces no partitions: it can hold %d P_Keys of the %d that are behind it", p.name(), limit, len(keys))
		return nil, 0
	}
	return keys, how
}

// wantEnforced switches enforcement on where the table for it is set, else off:
// with another table what is allowed would get lost.
func (m *Manager) wantEnforced(p *port, want mad.PortInfo) {
	keys, how := m.enforced(p)
	if !slices.Equal(keys, p.pkeys) {
		how = 0
	}
	want.SetPartitionEnforcementInbound(how&EnforceIn != 0)
	want.SetPartitionEnforcementOutbound(how&EnforceOut != 0)
}
