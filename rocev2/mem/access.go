package mem

import (
	"errors"
	"fmt"
	"strings"
)

// Access is a set of rights, numbered as ibv_access_flags. Reading by the local
// side is always allowed.
type Access uint32

// The rights.
const (
	LocalWrite   Access = 1 << 0
	RemoteWrite  Access = 1 << 1
	RemoteRead   Access = 1 << 2
	RemoteAtomic Access = 1 << 3
	MWBind       Access = 1 << 4
	ZeroBased    Access = 1 << 5
	FlushGlobal  Access = 1 << 8

	// FlushPersistent is the right to ask that what was written outlasts a loss
	// of power. No memory here does.
	FlushPersistent Access = 1 << 9

	// Optional are the rights that a device may ignore
	// (IBV_ACCESS_OPTIONAL_RANGE; relaxed ordering is one). This one does.
	Optional Access = 0x3ff00000
)

var accessNames = []struct {
	bit  Access
	name string
}{
	{LocalWrite, "LOCAL_WRITE"},
	{RemoteWrite, "REMOTE_WRITE"},
	{RemoteRead, "REMOTE_READ"},
	{RemoteAtomic, "REMOTE_ATOMIC"},
	{MWBind, "MW_BIND"},
	{ZeroBased, "ZERO_BASED"},
	{FlushGlobal, "FLUSH_GLOBAL"},
	{FlushPersistent, "FLUSH_PERSISTENT"},
}

const (
	knownAccess = LocalWrite | RemoteWrite | RemoteRead | RemoteAtomic | MWBind | ZeroBased | FlushGlobal

	// remoteAccess are the rights that a peer can use.
	remoteAccess = RemoteWrite | RemoteRead | RemoteAtomic | FlushGlobal

	// byLKey is the right of work requests of this side, which every region
	// gives and no window does. It is none of ibv_access_flags.
	byLKey Access = 1 << 31
)

// String lists the rights by ibverbs' names.
func (a Access) String() string {
	var names []string
	for _, n := range accessNames {
		if a&n.bit != 0 {
			names = append(names, n.name)
		}
	}
	if rest := a &^ knownAccess; rest != 0 {
		names = append(names, fmt.Sprintf("%#x", uint32(rest)))
	}
	if len(names) == 0 {
		return "0"
	}
	return strings.Join(names, "|")
}

// check refuses what ibv_reg_mr refuses.
func (a Access) check() error {
	if a&FlushPersistent != 0 {
		return errors.New("access FLUSH_PERSISTENT: the memory isn't persistent; allowed is FLUSH_GLOBAL")
	}
	if unknown := a &^ (knownAccess | Optional); unknown != 0 {
		return fmt.Errorf("unknown access flags %v: allowed are %v and, without effect, %v",
			unknown, knownAccess, Optional)
	}
	// C10-36, o10-37.2.1: who lets peers write must allow local writes.
	if a&(RemoteWrite|RemoteAtomic) != 0 && a&LocalWrite == 0 {
		return fmt.Errorf("access %v lacks LOCAL_WRITE, which REMOTE_WRITE and REMOTE_ATOMIC need", a)
	}
	return nil
}
