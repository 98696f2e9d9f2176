package ib

import "fmt"

// MTU is a path or port MTU in its IBA encoding: payload bytes a packet may carry.
type MTU uint8

// The MTUs of IBA 9.2.1 (PathMTU), as ibv_mtu numbers them.
const (
	MTU256 MTU = iota + 1
	MTU512
	MTU1024
	MTU2048
	MTU4096
)

// Bytes returns the payload size in bytes, or 0 when m isn't valid.
func (m MTU) Bytes() int {
	if !m.Valid() {
		return 0
	}
	return 128 << m
}

// Valid reports whether m is one of the five encodings.
func (m MTU) Valid() bool { return m >= MTU256 && m <= MTU4096 }

func (m MTU) String() string {
	if !m.Valid() {
		return fmt.Sprintf("invalid MTU (%d)", uint8(m))
	}
	return fmt.Sprint(m.Bytes())
}

// MTUFromBytes returns the encoding of exactly n bytes.
func MTUFromBytes(n int) (MTU, error) {
	for m := MTU256; m <= MTU4096; m++ {
		if m.Bytes() == n {
			return m, nil
		}
	}
	return 0, fmt.Errorf("path MTU %d: want 256, 512, 1024, 2048 or 4096", n)
}

// RoCEOverhead is the most a RoCEv2 packet adds to its payload inside the
// Ethernet frame: IPv6 40, UDP 8, BTH 12, the longest extended headers (RETH
// and ImmDt 20), ICRC 4.
const RoCEOverhead = 40 + 8 + 12 + 20 + 4

// MTUForLink returns the largest path MTU that fits a link of n bytes (an
// Ethernet interface's MTU), or 0 when even 256 does not.
func MTUForLink(n int) MTU {
	for m := MTU4096; m >= MTU256; m-- {
		if m.Bytes()+RoCEOverhead <= n {
			return m
		}
	}
	return 0
}

// PortState is the logical state of a port.
type PortState uint8

// The states of IBA 14.2.5.6, as ibv_port_state numbers them.
const (
	PortNop PortState = iota
	PortDown
	PortInit
	PortArmed
	PortActive
	PortActiveDefer
)

var portStates = [...]string{
	PortNop: "NOP", PortDown: "DOWN", PortInit: "INIT", PortArmed: "ARMED", PortActive: "ACTIVE", PortActiveDefer: "ACTIVE_DEFER",
}

// String gives the name that ibv_devinfo prints after "PORT_".
func (s PortState) String() string {
	if int(s) < len(portStates) {
		return portStates[s]
	}
	return fmt.Sprintf("invalid state (%d)", uint8(s))
}

// Rate is a static rate of an address vector or a path, in its IBA encoding.
type Rate uint8

// Rates in the encoding of ibv_rate (IBA 9.11.2). RateMax means no limit.
const (
	RateMax     Rate = 0
	Rate2_5Gbps Rate = 2
	Rate10Gbps  Rate = 3
	Rate30Gbps  Rate = 4
	Rate5Gbps   Rate = 5
	Rate20Gbps  Rate = 6
	Rate40Gbps  Rate = 7
	Rate60Gbps  Rate = 8
	Rate80Gbps  Rate = 9
	Rate120Gbps Rate = 10
	Rate14Gbps  Rate = 11
	Rate56Gbps  Rate = 12
	Rate112Gbps Rate = 13
	Rate168Gbps Rate = 14
	Rate25Gbps  Rate = 15
	Rate100Gbps Rate = 16
	Rate200Gbps Rate = 17
	Rate300Gbps Rate = 18
	Rate28Gbps  Rate = 19
	Rate50Gbps  Rate = 20
	Rate400Gbps Rate = 21
	Rate600Gbps Rate = 22

	Rate800Gbps  Rate = 23
	Rate1200Gbps Rate = 24
)

// mbps are the effective rates of ibv_rate_to_mbps.
var mbps = [...]int{
	Rate2_5Gbps: 2500, Rate10Gbps: 10000, Rate30Gbps: 30000, Rate5Gbps: 5000,
	Rate20Gbps: 20000, Rate40Gbps: 40000, Rate60Gbps: 60000, Rate80Gbps: 80000,
	Rate120Gbps: 120000, Rate14Gbps: 14062, Rate56Gbps: 56250, Rate112Gbps: 112500,
	Rate168Gbps: 168750, Rate25Gbps: 25781, Rate100Gbps: 103125, Rate200Gbps: 206250,
	Rate300Gbps: 309375, Rate28Gbps: 28125, Rate50Gbps: 53125, Rate400Gbps: 425000,
	Rate600Gbps: 637500, Rate800Gbps: 850000, Rate1200Gbps: 1275000,
}

// Mbps returns the rate in Mb/s, or 0 for RateMax and for encodings that don't exist.
func (r Rate) Mbps() int {
	if int(r) >= len(mbps) {
		return 0
	}
	return mbps[r]
}

// Valid reports whether r is RateMax or one of the encodings above.
func (r Rate) Valid() bool { return r == RateMax || r.Mbps() != 0 }

func (r Rate) String() string {
	switch {
	case r == RateMax:
		return "max"
	case !r.Valid():
		return fmt.Sprintf("invalid rate (%d)", uint8(r))
	}
	return fmt.Sprintf("%g Gbps", float64(r.Mbps())/1000)
}
