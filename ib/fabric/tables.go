package fabric

import (
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
)

// switchTables is what a switch forwards by.
type switchTables struct {
	info [mad.SwitchInfoSize]byte
	// lft has the blocks that were set; what lies behind its end is noPort.
	lft []byte
	// mft has, by position, the port masks of all groups, once one was set.
	mft [16][]uint16
}

// noPort in a forwarding table drops what is sent to that LID.
const noPort = 255

func newSwitchTables(d *Defaults) *switchTables {
	t := &switchTables{}
	si := t.si()
	si.SetLinearFDBCap(uint16(d.LinearFDB))
	si.SetMulticastFDBCap(uint16(d.Multicast))
	si.SetPartitionEnforcementCap(8)
	si.SetInboundEnforcementCap(true)
	si.SetOutboundEnforcementCap(true)
	si.SetLifeTimeValue(16)
	if d.OptSLtoVL {
		si.SetOptimizedSLtoVLMappingProgramming(1)
	}
	return t
}

func (t *switchTables) si() mad.SwitchInfo { return t.info[:] }

// forward returns the port that packets to lid leave by; noPort when none.
func (t *switchTables) forward(lid ib.LID) byte {
	if int(lid) >= len(t.lft) || uint16(lid) > t.si().LinearFDBTop() {
		return noPort
	}
	return t.lft[lid]
}

// setBlock sets 64 entries.
func (t *switchTables) setBlock(block int, b []byte) {
	end := (block + 1) * mad.LinearForwardingTableSize
	for len(t.lft) < end {
		t.lft = append(t.lft, emptyBlock[:]...)
	}
	copy(t.lft[end-mad.LinearForwardingTableSize:], b)
}

func (t *switchTables) block(block int) []byte {
	begin := block * mad.LinearForwardingTableSize
	if begin >= len(t.lft) {
		return emptyBlock[:]
	}
	return t.lft[begin : begin+mad.LinearForwardingTableSize]
}

var emptyBlock = func() (b [mad.LinearForwardingTableSize]byte) {
	for i := range b {
		b[i] = noPort
	}
	return b
}()

// portTables is what a port has beside its PortInfo, once something was set.
type portTables struct {
	pkeys []ib.PKey
	guids []ib.GUID
	vlarb [4][mad.VLArbitrationTableSize]byte
	// sl2vl is by the port that packets come in by; all of it is one entry at
	// an endport.
	sl2vl [][mad.SLtoVLMappingTableSize]byte
	mlnx  [mad.MlnxExtPortInfoSize]byte
	led   bool
}

// own returns the tables of p, made when they are not there.
func (p *port) own() *portTables {
	if p.tables == nil {
		p.tables = &portTables{}
		p.tables.vlarb = initialArbitration(&p.node.f.defaults)
	}
	return p.tables
}

// initialArbitration gives all lanes equal weight in the low table.
func initialArbitration(d *Defaults) (t [4][mad.VLArbitrationTableSize]byte) {
	for i := range min(int(d.VLArbCap), int(lanes(d.VLCap)), 32) {
		t[0][2*i], t[0][2*i+1] = byte(i), 1
	}
	return t
}

var onlyDefaultPKey = []ib.PKey{ib.PKeyDefault}

// pkeys returns the P_Key table of p, without the empty entries at its end.
func (p *port) pkeys() []ib.PKey {
	if p.tables == nil || p.tables.pkeys == nil {
		return onlyDefaultPKey
	}
	return p.tables.pkeys
}

// maxPKeys returns how many P_Keys p holds.
func (p *port) maxPKeys() int {
	if p.node.isSwitch() && p.num != 0 {
		return int(p.node.sw.si().PartitionEnforcementCap())
	}
	return int(mad.NodeInfo(p.node.info[:]).PartitionCap())
}

// lane returns the VL of packets that come to a switch by port in and leave by p.
func (p *port) lane(in, sl uint8) uint8 {
	row := p.mapping(in)
	return mad.SLtoVLMappingTable(row[:]).VL(int(sl & 15))
}

// identity maps each SL to the lane of its number, and SL15 to the last data lane.
var identity = [mad.SLtoVLMappingTableSize]byte{0x01, 0x23, 0x45, 0x67, 0x01, 0x23, 0x45, 0x67}

func (p *port) mapping(in uint8) *[mad.SLtoVLMappingTableSize]byte {
	if p.tables == nil || p.tables.sl2vl == nil {
		return &identity
	}
	return &p.tables.sl2vl[min(int(in), len(p.tables.sl2vl)-1)]
}

// setMapping sets the row of one port by which packets come in.
func (p *port) setMapping(in int, row []byte) {
	t := p.own()
	if t.sl2vl == nil {
		rows := 1
		if p.node.isSwitch() {
			rows = len(p.node.ports)
		}
		t.sl2vl = make([][mad.SLtoVLMappingTableSize]byte, rows)
		for i := range t.sl2vl {
			t.sl2vl[i] = identity
		}
	}
	copy(t.sl2vl[min(in, len(t.sl2vl)-1)][:], row)
}
