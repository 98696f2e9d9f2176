package sm

import (
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/sm/lid"
	"github.com/urxe/urxe/sm/route"
	"github.com/urxe/urxe/sm/subnet"
)

// Config is how a subnet is to be managed. The zero value works.
type Config struct {
	Engines []string // routing engines in order; see route.Compute
	Routing route.Options

	Prefix   uint64 // subnet prefix; 0 is fe80::/64
	Priority uint8  // 0 to 15; the highest SM is master
	MKey     uint64
	// MKeyLease is how many seconds ports protect MKey after the last one who
	// had it; 0 is for good. MKeyProtect is what they protect it from: 0 and 1 let
	// anybody read, 2 and 3 nobody (IBA 14.2.4.1); all but 0 hide the key.
	MKeyLease   uint16
	MKeyProtect uint8
	SMKey       uint64 // what other SMs must have as well; 0 is 1, as OpenSM has it
	LMC         uint8  // 1<<LMC LIDs for each CA port, 0 to 7

	// MaxSMPs bounds the requests under way; the window adapts below it. 0 is 64.
	MaxSMPs int
	// Timeout is how long an answer may take before the round trip is known,
	// and at most after; 0 is 200 ms.
	Timeout time.Duration
	// Retries is how often a request is sent again; 0 is 8.
	Retries int

	// SweepInterval is the time between light sweeps; 0 is 10 s, less is never.
	SweepInterval time.Duration

	MaxOpVLs       uint8 // in the encoding of OperationalVLs (5 is 15 VLs); 0 is 5
	SubnetTimeout  uint8 // of end ports, 4.096 µs * 2^n; 0 is 18
	PacketLifeTime uint8 // of switches, likewise; 0 is 18
	HOQLife        uint8 // of switch ports, likewise; 0 is 18
	LeafHOQLife    uint8 // of switch ports to hosts; 0 is 16
	VLStallCount   uint8 // 0 is 7

	// LIDs is where LIDs come from and go to; nil starts without any.
	LIDs *lid.Table
	// ReassignLIDs forgets what LIDs ports come with.
	ReassignLIDs bool

	// PKeys returns the P_Key table that an end port is to have; nil, or a nil
	// func, leaves the port's own.
	PKeys func(Member) []ib.PKey

	// Enforce makes switches drop what comes from, or goes to, an end port in a
	// partition that is not its own.
	Enforce Enforce

	// Names are names for nodes that count before their own descriptions.
	Names map[ib.GUID]string

	// DisableBabbling shuts ports that send traps about errors without end.
	DisableBabbling bool

	// NoReregister keeps clients from being told to register again.
	NoReregister bool

	// Report is called for everything an operator should see; nil is silence.
	Report func(Event)
	// StoodBy is called when another subnet manager turns out to be master; nil
	// is nobody.
	StoodBy func()
	// Changed is called with each new snapshot; nil is nobody.
	Changed func(*subnet.Snapshot)
}

// Enforce is where a switch port that an end port is at checks partitions.
type Enforce uint8

// The ways that packets may go.
const (
	EnforceIn Enforce = 1 << iota
	EnforceOut
	EnforceBoth = EnforceIn | EnforceOut
)

// Member is a port that partitions are asked about.
type Member struct {
	GUID ib.GUID // of the port
	Type uint8   // NodeInfo's
	Self bool    // the subnet manager's own port
}

func or[T comparable](v, instead T) T {
	var zero T
	if v == zero {
		return instead
	}
	return v
}

func (c *Config) fill() {
	c.Prefix = or(c.Prefix, 0xfe80<<48)
	c.SMKey = or(c.SMKey, 1)
	c.MaxSMPs = or(c.MaxSMPs, 64)
	c.Timeout = or(c.Timeout, 200*time.Millisecond)
	c.Retries = or(c.Retries, 8)
	c.SweepInterval = or(c.SweepInterval, 10*time.Second)
	c.MaxOpVLs = or(c.MaxOpVLs, 5)
	c.SubnetTimeout = or(c.SubnetTimeout, 18)
	c.PacketLifeTime = or(c.PacketLifeTime, 18)
	c.HOQLife = or(c.HOQLife, 18)
	c.LeafHOQLife = or(c.LeafHOQLife, 16)
	c.VLStallCount = or(c.VLStallCount, 7)
	c.LIDs = or(c.LIDs, &lid.Table{})
	if c.Report == nil {
		c.Report = func(Event) {}
	}
	if c.StoodBy == nil {
		c.StoodBy = func() {}
	}
	if c.Changed == nil {
		c.Changed = func(*subnet.Snapshot) {}
	}
}

// Level is how grave an event is, in the bits of OpenSM's log.
type Level uint8

// The levels that are used.
const (
	LevelError   Level = 0x01
	LevelInfo    Level = 0x02
	LevelVerbose Level = 0x04
	LevelDebug   Level = 0x08
	LevelSys     Level = 0x80 // what also goes to the system log
)

// Event is a line of the log.
type Event struct {
	Level Level
	Code  string // "6001": names an error for good; empty for others
	Where string // the part that reports it
	Text  string
}
