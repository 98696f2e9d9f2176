package ibsim

import (
	"encoding/binary"
	"fmt"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
)

// A control message, in the host's byte order:
//
//	 0 magic
//	 4 client, as the server numbers them; any on connect
//	 8 type; the answer's is ctlError when it is refused
//	12 length of the data
//	16 data, 64 bytes
const (
	ctlSize  = 80
	ctlMagic = 0xdeadbeef
	ctlData  = 16
)

type ctlType uint32

const (
	ctlError ctlType = iota
	ctlConnect
	ctlDisconnect
	ctlGetPort
	ctlGetVendor
	ctlGetGID
	ctlGetGUID
	ctlGetNodeInfo
	ctlGetPortInfo
	ctlSetIsSM
	ctlGetPKeys
)

var ctlNames = [...]string{"error", "connect", "disconnect", "get port", "get vendor", "get GID", "get GUID",
	"get node info", "get port info", "set IsSM", "get P_Keys"}

func (t ctlType) String() string {
	if int(t) < len(ctlNames) {
		return ctlNames[t]
	}
	return fmt.Sprintf("type %d", uint32(t))
}

var host = binary.NativeEndian

// putCtl writes a control message.
func putCtl(b *[ctlSize]byte, client uint32, t ctlType, data []byte) {
	clear(b[:])
	host.PutUint32(b[0:], ctlMagic)
	host.PutUint32(b[4:], client)
	host.PutUint32(b[8:], uint32(t))
	host.PutUint32(b[12:], uint32(copy(b[ctlData:], data)))
}

// parseCtl returns the type and the data of an answer.
func parseCtl(b []byte) (ctlType, []byte, error) {
	if len(b) != ctlSize || host.Uint32(b) != ctlMagic {
		return 0, nil, fmt.Errorf("control message of %d bytes is not ibsim's", len(b))
	}
	return ctlType(host.Uint32(b[8:])), b[ctlData:], nil
}

// The data of a connect: what the client is, and in the answer what it became.
const (
	infoID     = 0 // The client's choice, to find it by; in the answer its number.
	infoIsSM   = 8
	infoNode   = 12 // NUL-terminated; empty is the first node.
	infoSize   = 44
	maxNode    = infoSize - infoNode - 1
	maxClients = 10
)

func clientInfo(id uint32, node string, sm bool) []byte {
	b := make([]byte, infoSize)
	host.PutUint32(b[infoID:], id)
	if sm {
		host.PutUint32(b[infoIsSM:], 1)
	}
	copy(b[infoNode:], node)
	return b
}

// A data packet:
//
//	 0 dlid  4 slid: big-endian, in the first half of the word
//	 8 dqp  12 sqp  16 status: big-endian
//	24 length, big-endian
//	32 the MAD
const (
	dataSize = 32 + mad.Size
	dataMAD  = 32

	// statusLost is in a packet that comes back to its sender: it met a link
	// that is down, a lossy port, or nobody who answers.
	statusLost = 110
)

// putData writes p as it goes out. The simulator fills in our own LID.
func putData(b *[dataSize]byte, p *mad.Packet) {
	clear(b[:dataMAD])
	binary.BigEndian.PutUint16(b[0:], uint16(p.Addr.LID))
	if p.MAD().Class() == mad.ClassSubnDirect {
		binary.BigEndian.PutUint16(b[4:], uint16(ib.LIDPermissive))
	}
	binary.BigEndian.PutUint32(b[8:], uint32(p.Addr.QPN))
	if p.Addr.QPN != ib.QPNSubnetManagement {
		binary.BigEndian.PutUint32(b[12:], uint32(ib.QPNGeneralServices))
	}
	binary.BigEndian.PutUint64(b[24:], uint64(length(p.MAD())))
	copy(b[dataMAD:], p.Data[:])
}

// length returns how much of a MAD says something. Programs behind the
// simulator's preload library count the records of an answer by it, as they do
// by the length of a kernel's message.
func length(m mad.MAD) int {
	const header = mad.HeaderSize + 12 // the RMPP header ends the part that PayloadLength does not count
	if n := int(m.Window()); m.IsRMPP() && m.RMPPType() == mad.RMPPData && n > 0 {
		return min(mad.Size, header+n)
	}
	return mad.Size
}

// parseData reads a packet that came in. lost says that it is one of ours that
// the simulator could not carry.
func parseData(b []byte, p *mad.Packet) (lost bool, err error) {
	if len(b) != dataSize {
		return false, fmt.Errorf("data packet of %d bytes: want %d", len(b), dataSize)
	}
	m, err := mad.Parse(b[dataMAD:])
	if err != nil {
		return false, err
	}
	*p = mad.Packet{}
	p.Addr.LID = ib.LID(binary.BigEndian.Uint16(b[4:]))
	p.Addr.QPN = ib.QPN(binary.BigEndian.Uint32(b[12:]))
	if m.Class() == mad.ClassSubnDirect {
		p.Addr = mad.Direct
	}
	copy(p.Data[:], m)
	return binary.BigEndian.Uint32(b[16:]) != 0, nil
}
