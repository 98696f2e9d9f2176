package umad

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
)

// abiVersion is what /sys/class/infiniband_mad/abi_version must say.
const abiVersion = 5

// ioctlRegisterAgent2 registers an agent, and makes the kernel use the header
// with a P_Key index.
const ioctlRegisterAgent2 = 0xc0281b04

// The request that registers an agent, ib_user_mad_reg_req2, in the host's
// order:
//
//	 0 id, out        4 QPN: 0 or 1
//	 8 class          9 class version
//	12 flags
//	16 method mask: bit m%64 of word m/64 for each request that is wanted
//	32 OUI, of vendor classes
//	36 RMPP version
const (
	regSize  = 40
	regID    = 0
	regQPN   = 4
	regClass = 8
	regVer   = 9
	regFlags = 12
	regMask  = 16
	regOUI   = 32
	regRMPP  = 36

	// flagUserRMPP leaves RMPP to us.
	flagUserRMPP = 1
)

var host = binary.NativeEndian

// Agent is a class that a port speaks.
type Agent struct {
	Class mad.Class
	// Methods are the requests of others that come in. Answers to our own do anyway.
	Methods []mad.Method
	// OUI is needed by the vendor classes 0x30 to 0x4f.
	OUI uint32
}

// request returns what registers a.
func (a *Agent) request() [regSize]byte {
	var b [regSize]byte
	host.PutUint32(b[regQPN:], uint32(a.Class.QPN()))
	b[regClass] = byte(a.Class)
	b[regVer] = a.Class.Version()
	for _, m := range a.Methods {
		word := b[regMask+8*(int(m&0x7f)/64):]
		host.PutUint64(word, host.Uint64(word)|1<<(m%64))
	}
	host.PutUint32(b[regOUI:], a.OUI)
	if a.Class.RMPP() {
		b[regRMPP] = 1
		host.PutUint32(b[regFlags:], flagUserRMPP)
	}
	return b
}

// The header before each MAD, ib_user_mad with a P_Key index:
//
//	 0 agent   4 status   8 timeout, ms   12 retries   16 length: the host's order
//	20 QPN    24 Q_Key   28 LID: big-endian
//	30 SL     31 path bits  32 GRH present  33 GID index  34 hop limit  35 traffic class
//	36 GID    52 flow label: big-endian
//	56 P_Key index: the host's order
const (
	headerSize = 64

	offAgent    = 0
	offStatus   = 4
	offTimeout  = 8
	offRetries  = 12
	offLength   = 16
	offQPN      = 20
	offQKey     = 24
	offLID      = 28
	offSL       = 30
	offPathBits = 31
	offGRH      = 32
	offGIDIndex = 33
	offHopLimit = 34
	offTClass   = 35
	offGID      = 36
	offFlow     = 52
	offPKey     = 56

	messageSize = headerSize + mad.Size

	// statusTimedOut is in a request that comes back (ETIMEDOUT).
	statusTimedOut = 110
)

// putMessage writes p as it is handed to the kernel.
func putMessage(b *[messageSize]byte, p *mad.Packet, agent uint32) {
	clear(b[:headerSize])
	a := &p.Addr
	host.PutUint32(b[offAgent:], agent)
	if p.Timeout > 0 {
		host.PutUint32(b[offTimeout:], uint32(max(1, p.Timeout/time.Millisecond)))
		host.PutUint32(b[offRetries:], uint32(max(0, p.Retries)))
	}
	binary.BigEndian.PutUint32(b[offQPN:], uint32(a.QPN))
	qkey := a.QKey
	if qkey == 0 && a.QPN != ib.QPNSubnetManagement {
		qkey = ib.QKeyGSI
	}
	binary.BigEndian.PutUint32(b[offQKey:], uint32(qkey))
	binary.BigEndian.PutUint16(b[offLID:], uint16(a.LID))
	b[offSL], b[offPathBits] = a.SL, a.PathBits
	if g := &a.GRH; g.Present {
		b[offGRH], b[offGIDIndex], b[offHopLimit], b[offTClass] = 1, g.GIDIndex, g.HopLimit, g.TrafficClass
		copy(b[offGID:], g.GID[:])
		binary.BigEndian.PutUint32(b[offFlow:], g.FlowLabel)
	}
	host.PutUint16(b[offPKey:], a.PKeyIndex)
	copy(b[headerSize:], p.Data[:])
}

// parseMessage reads what the kernel hands over. A request that comes back has
// only the header that all classes share.
func parseMessage(b []byte, p *mad.Packet) error {
	if len(b) < headerSize+mad.HeaderSize {
		return fmt.Errorf("message of %d bytes: want at least %d", len(b), headerSize+mad.HeaderSize)
	}
	*p = mad.Packet{}
	switch status := host.Uint32(b[offStatus:]); status {
	case 0:
		if _, err := mad.Parse(b[headerSize:]); err != nil {
			return err
		}
	case statusTimedOut:
		p.Err = mad.ErrTimeout
	default:
		return fmt.Errorf("message of status %d", status)
	}
	copy(p.Data[:], b[headerSize:])
	p.Addr = parseAddr(b)
	return nil
}

func parseAddr(b []byte) mad.Addr {
	a := mad.Addr{
		QPN: ib.QPN(binary.BigEndian.Uint32(b[offQPN:])), QKey: ib.QKey(binary.BigEndian.Uint32(b[offQKey:])),
		LID: ib.LID(binary.BigEndian.Uint16(b[offLID:])), SL: b[offSL], PathBits: b[offPathBits],
		PKeyIndex: host.Uint16(b[offPKey:]),
	}
	if b[offGRH] != 0 {
		a.GRH = mad.GRH{
			Present: true, GID: ib.GID(b[offGID : offGID+16]), GIDIndex: b[offGIDIndex], HopLimit: b[offHopLimit],
			TrafficClass: b[offTClass], FlowLabel: binary.BigEndian.Uint32(b[offFlow:]),
		}
	}
	return a
}
