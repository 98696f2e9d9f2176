package decode

import (
	"net/netip"
	"time"

	"github.com/urxe/urxe/internal/capture"
	"github.com/urxe/urxe/rocev2/wire"
)

// prefix begins a line: number, time, direction if known, and addresses.
func (d *decoder) prefix(c *capture.Packet) {
	d.line = d.line[:0]
	d.printf("%5d  ", d.n.Packets)
	switch {
	case c.Time.IsZero():
		d.printf("%15s", "-")
	case d.absolute:
		d.line = c.Time.UTC().AppendFormat(d.line, "15:04:05.000000000")
	default:
		since := c.Time.Sub(d.start)
		d.printf("%15.9f", float64(since)/float64(time.Second))
	}
	if c.Direction != capture.Unknown {
		d.printf("  %-3v", c.Direction)
	}
	d.printf("  %v > %v", address(d.p.Src), address(d.p.Dst))
	if d.p.VLAN != 0 {
		d.printf("  vlan %d", d.p.VLAN&0xfff)
	}
}

func address(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

// packet prints a packet's BTH, extended headers and payload length.
func (d *decoder) packet() {
	p := &d.p
	d.printf("  qp %v  %v  psn %v", p.DestQP, p.Opcode, p.PSN)
	for _, f := range []struct {
		set  bool
		name string
	}{{p.SE, "solicited"}, {p.AckReq, "ackreq"}, {p.FECN, "fecn"}, {p.BECN, "becn"}} {
		if f.set {
			d.printf(" %s", f.name)
		}
	}
	if p.PKey != 0xffff {
		d.printf("  pkey %v", p.PKey)
	}
	d.extended(p.Opcode.Info().Ext)
	d.printf("  len %d", p.Len)
}

// extended prints the extended headers e, in the order in which they stand in a packet.
func (d *decoder) extended(e wire.Ext) {
	p := &d.p
	if e.Has(wire.ExtDETH) {
		d.printf("  qkey %v from qp %v", p.QKey, p.SrcQP)
	}
	if e.Has(wire.ExtFETH) {
		d.printf("  flush%s", flush(p.Flush))
	}
	if e.Has(wire.ExtRETH) {
		d.printf("  va 0x%x rkey 0x%08x length %d", p.VA, p.RKey, p.Length)
	}
	if e.Has(wire.ExtAtomicETH) {
		d.atomic()
	}
	if e.Has(wire.ExtAETH) {
		d.printf("  %v  msn %d", p.Syndrome, p.MSN)
	}
	if e.Has(wire.ExtAtomicAckETH) {
		d.printf("  original 0x%x", p.Orig)
	}
	if e.Has(wire.ExtImmDt) {
		d.printf("  imm 0x%08x", p.Imm)
	}
	if e.Has(wire.ExtIETH) {
		d.printf("  invalidate 0x%08x", p.InvKey)
	}
}

func (d *decoder) atomic() {
	p := &d.p
	d.printf("  va 0x%x rkey 0x%08x", p.VA, p.RKey)
	if p.Opcode == wire.RCFetchAdd {
		d.printf(" add 0x%x", p.Swap)
		return
	}
	d.printf(" compare 0x%x swap 0x%x", p.Compare, p.Swap)
}

// flush tells what a FETH asks for (Annex A19): placement type and range selector.
func flush(v uint32) (s string) {
	if v&1 != 0 {
		s += " global"
	}
	if v&2 != 0 {
		s += " persistent"
	}
	switch v >> 4 & 3 {
	case 0:
		return s + " range"
	case 1:
		return s + " region"
	}
	return s + " reserved selector"
}
