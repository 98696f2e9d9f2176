package mad

import (
	"errors"
	"fmt"
	"time"

	"github.com/urxe/urxe/ib"
)

// ErrTimeout is the Err of a request that comes back because no answer did.
var ErrTimeout = errors.New("no answer")

// ErrClosed is returned by a Port that was closed.
var ErrClosed = errors.New("port is closed")

// GRH is the global route header of a packet; it has one when Present is set.
type GRH struct {
	Present      bool
	GID          ib.GID // Of the other side.
	GIDIndex     uint8  // Of this side, in the port's table.
	HopLimit     uint8
	TrafficClass uint8
	FlowLabel    uint32
}

// Addr is the other side of a packet: where it goes, or where it came from.
type Addr struct {
	LID       ib.LID  // ib.LIDPermissive with a directed route.
	QPN       ib.QPN  // 0 for subnet management, 1 for the rest; a requester may have another.
	QKey      ib.QKey // 0 means ib.QKeyGSI unless QPN is 0.
	SL        uint8
	PathBits  uint8  // This side's LID, above its base LID.
	PKeyIndex uint16 // In the port's table.
	GRH       GRH
}

// Direct is the address of a MAD that is routed by itself.
var Direct = Addr{LID: ib.LIDPermissive}

// Packet is a MAD and its address.
type Packet struct {
	Addr Addr
	// Timeout is how long a request that is sent waits for its answer, each
	// time it is sent; 0 for what needs no answer: responses, repressions.
	Timeout time.Duration
	// Retries is how often the request is sent again before it comes back.
	Retries int
	// Err is ErrTimeout in a request that comes back. Its MAD has the TID's
	// low half, the method and the attribute of the request; the rest may be
	// lost. It is nil in all other packets that are received.
	Err  error
	Data [Size]byte
}

// MAD returns a view of the datagram.
func (p *Packet) MAD() MAD { return p.Data[:] }

// Key returns the half of the TID that a Port leaves alone.
func (p *Packet) Key() uint32 { return uint32(p.MAD().TID()) }

func (p *Packet) String() string {
	return fmt.Sprintf("LID %d QPN %d: %v", p.Addr.LID, p.Addr.QPN, p.MAD())
}

// Local describes this side's port as it is now.
type Local struct {
	Device    string // As the user knows it: "mlx5_0", "ibsim0", a node's description.
	Port      int
	GUID      ib.GUID // Of the port.
	NodeGUID  ib.GUID
	GIDPrefix uint64
	LID       ib.LID
	LMC       uint8
	SMLID     ib.LID // Where the subnet administration answers; 0 when no SM came by.
	SMSL      uint8
	State     ib.PortState
	PKeys     []ib.PKey
}

// Port sends and receives MADs through a port of a subnet.
//
// A packet with a Timeout is a request. Exactly one packet comes back for it:
// its answer, which has the same Key, or itself with ErrTimeout. The low half
// of the TID is the caller's, and must not be that of another request under
// way; the high half is the Port's, in requests, and is kept in answers. What
// others ask, and traps, come in with Err nil and a method that is no
// response; answer them with the TID they have.
//
// A directed SMP is addressed to Direct, made by InitSMP, and sent with its
// hop pointer at 0.
//
// Packets get lost, come twice, and overtake one another. A Port is safe for
// concurrent use, and no slow caller of Recv holds up anyone else: what
// overflows the Port's queue is dropped and counted.
type Port interface {
	// Send hands p over and keeps nothing of it. It waits while the way out is
	// full. An error means that the packet was not sent, and will not come back.
	Send(p *Packet) error
	// Recv waits for packets and returns how many it put into ps: at least
	// one, unless the Port is closed (ErrClosed) or broken.
	Recv(ps []Packet) (int, error)
	// Local returns what is known of this port.
	Local() (Local, error)
	// SetSM sets or clears the IsSM bit of the port, which says that a subnet
	// manager is here. Requests to the SM come only to the one that set it.
	SetSM(on bool) error
	// Dropped returns how many packets were lost because the queue was full.
	Dropped() uint64
	// Close clears IsSM and frees the port; a Recv under way returns ErrClosed.
	Close() error
}

// LocalOf tells what two attributes say of a port. The caller adds the device
// and the P_Keys.
func LocalOf(node NodeInfo, port PortInfo) Local {
	return Local{
		Port: int(port.LocalPortNum()), GUID: node.PortGUID(), NodeGUID: node.NodeGUID(), GIDPrefix: port.GIDPrefix(),
		LID: port.LID(), LMC: port.LMC(), SMLID: port.MasterSMLID(), SMSL: port.MasterSMSL(), State: port.PortState(),
	}
}
