package golden

import (
	"slices"

	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// need is the right that a request needs.
func need(p *packet) mem.Access {
	switch p.Opcode.Info().Operation {
	case wire.OpWrite, wire.OpAtomicWrite:
		return mem.RemoteWrite
	case wire.OpReadRequest:
		return mem.RemoteRead
	case wire.OpCompareSwap, wire.OpFetchAdd:
		return mem.RemoteAtomic
	case wire.OpFlush:
		return mem.FlushGlobal
	}
	return 0
}

// span is the memory that a request names; none without bytes.
func span(p *packet) (lo, hi uint64) {
	switch i := p.Opcode.Info(); {
	case i.Ext.Has(wire.ExtRETH):
		return p.VA, p.VA + uint64(p.Length)
	case i.Ext.Has(wire.ExtAtomicETH):
		return p.VA, p.VA + 8
	}
	return 0, 0
}

// refusal is the request that was refused for good, or nil.
func (k *talk) refusal() *packet {
	for _, r := range k.responses() {
		if !r.Syndrome.IsNak() || r.Syndrome == wire.NakSequence {
			continue
		}
		for _, p := range k.requests() {
			if p.PSN == r.PSN {
				return p
			}
		}
	}
	return nil
}

// windowSize is how much the windows of the captures of windows open.
const windowSize = 4096

// layOut makes the memory that the requests name, and its keys.
func (s *stage) layOut() {
	s.t.Helper()
	refused := s.refusal()
	ranges := map[uint32][2]uint64{} // by key
	for _, p := range s.requests() {
		if lo, hi := span(p); lo < hi {
			widen(ranges, p.RKey, lo, hi)
		}
	}
	for _, r := range ranges {
		s.cover(r[0], r[1])
	}
	clear(ranges)
	for _, p := range s.requests() {
		lo, hi := span(p)
		if lo == hi {
			continue
		}
		key, right := p.RKey, need(p)
		switch {
		case p != refused:
		case s.scene.xor != 0:
			key ^= s.scene.xor
		case s.scene.short:
			hi = lo + (hi-lo)/2
		case s.scene.right:
			right = 0
		case !s.scene.qpRight:
			continue // a window that is open no more, or not as wide
		}
		s.rights[key] |= right
		widen(ranges, key, lo, hi)
	}
	for _, p := range s.requests() {
		if _, used := ranges[p.InvKey]; p.InvKey != 0 && !used { // used by nobody
			s.cover(s.spare(), s.spare()+8)
			ranges[p.InvKey] = [2]uint64{s.spare() - 8, s.spare()}
			s.rights[p.InvKey] = mem.RemoteRead
		}
	}
	for key, r := range ranges {
		if s.scene.window != 0 {
			r[1] = r[0] + windowSize
		}
		s.open(key, r[0], r[1])
	}
	if refused != nil && s.scene.xor != 0 {
		s.keys[refused.RKey] = s.keys[refused.RKey^s.scene.xor] ^ s.scene.xor
	}
}

// spare is an address above all that the talk names.
func (s *stage) spare() (va uint64) {
	for _, a := range s.areas {
		va = max(va, a.base+uint64(len(a.bytes)))
	}
	return va
}

func widen(ranges map[uint32][2]uint64, key uint32, lo, hi uint64) {
	if r, ok := ranges[key]; ok {
		lo, hi = min(lo, r[0]), max(hi, r[1])
	}
	ranges[key] = [2]uint64{lo, hi}
}

// cover sees to an area that has all of [lo, hi).
func (s *stage) cover(lo, hi uint64) {
	lo = lo &^ 7
	s.areas = slices.DeleteFunc(s.areas, func(a *area) bool {
		end := a.base + uint64(len(a.bytes))
		touch := a.base <= hi && lo <= end
		if touch {
			lo, hi = min(lo, a.base), max(hi, end)
		}
		return touch
	})
	s.areas = append(s.areas, &area{lo, make([]byte, hi-lo), make([]uint32, hi-lo)})
}

// area returns what the byte at va is of.
func (s *stage) area(va uint64) *area {
	for _, a := range s.areas {
		if va >= a.base && va-a.base < uint64(len(a.bytes)) {
			return a
		}
	}
	return nil
}

// open makes what a key of the capture leads to: a window where the peer
// invalidates it, or the capture is about windows; else a region.
func (s *stage) open(key uint32, lo, hi uint64) {
	s.t.Helper()
	a := s.area(lo)
	rights := s.rights[key] | mem.LocalWrite
	typ := s.scene.window
	if slices.ContainsFunc(s.packets, func(p *packet) bool { return p.Opcode.Info().Ext.Has(wire.ExtIETH) && p.InvKey == key }) {
		typ = mem.MWType2
	}
	if typ == 0 {
		s.keys[key] = s.register(a.bytes, a.base, lo, hi-lo, rights).Key
		return
	}
	parent := s.register(a.bytes, a.base, a.base, uint64(len(a.bytes)), mem.LocalWrite|mem.MWBind)
	mw, err := s.port.Keys().AllocMW(s.pd, typ)
	if err != nil {
		s.t.Fatal(err)
	}
	s.sq.Post(&qp.SendWQE{Opcode: qp.WRBindMW, Local: &qp.Local{Bind: mem.Bind{
		MW: mw, Key: uint8(key), LKey: parent.Key, Addr: lo, Length: hi - lo, Access: s.rights[key]}}})
	s.qp.Doorbell()
	s.step()
	if len(s.cq.got) != 1 || s.cq.got[0].Status != qp.Success {
		s.t.Fatalf("bind: %+v", s.cq.got)
	}
	s.cq.got = nil
	s.keys[key] = mw.Key()
}
