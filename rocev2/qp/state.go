package qp

import (
	"fmt"
)

// State is the state of a QP, numbered as ibv_qp_state.
//
//	        modify             modify           modify
//	RESET ─────────► INIT ─────────► RTR ─────────► RTS ◄────────► SQD
//	  ▲                                              │    modify
//	  │ modify                                       │ error, modify
//	  └───────────── ERR ◄───────── any state ◄──────┘
//
// INIT takes receives; RTR also answers the peer; RTS also sends. SQD sends
// nothing new and lets what is in flight end. ERR flushes every work request.
type State uint8

// The states of IBA 10.3.1.
const (
	Reset State = iota
	Init
	RTR
	RTS
	SQD
	SQE
	Err
)

var stateNames = [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("invalid state (%d)", uint8(s))
}

// receives reports whether packets of the peer are taken in state s.
func (s State) receives() bool { return s == RTR || s == RTS || s == SQD }

// transition is one legal move of ibv_modify_qp with the attributes it must
// and may have (IBA 11.2.5.2, table 92).
type transition struct{ required, optional AttrMask }

const (
	optAccess = AttrAccess | AttrMinRNRTimer | AttrCurState | AttrAltPath | AttrPathMigState
	sqdAttrs  = optAccess | AttrAV | AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxRdAtomic |
		AttrMaxDestRdAtomic | AttrPKeyIndex | AttrPort
)

// transitions of an RC QP. Every state may also go to RESET and ERR.
var transitions = map[[2]State]transition{
	{Reset, Init}: {AttrPKeyIndex | AttrPort | AttrAccess, 0},
	{Init, Init}:  {0, AttrPKeyIndex | AttrPort | AttrAccess},
	{Init, RTR}: {AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN | AttrMaxDestRdAtomic | AttrMinRNRTimer,
		AttrAltPath | AttrAccess | AttrPKeyIndex},
	{RTR, RTS}: {AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrSQPSN | AttrMaxRdAtomic, optAccess},
	{RTS, RTS}: {0, optAccess},
	{RTS, SQD}: {0, AttrSQDAsyncNotify},
	{SQD, SQD}: {0, sqdAttrs},
	{SQD, RTS}: {0, optAccess},
}

// checkTransition says whether a QP may go from one state to another with the
// attributes of mask, and if not, why.
func checkTransition(from, to State, mask AttrMask) error {
	mask &^= AttrState
	t, ok := transitions[[2]State{from, to}]
	if to == Reset || to == Err {
		t, ok = transition{}, true
	}
	switch {
	case !ok:
		return fmt.Errorf("modify from %v to %v: not a legal transition (IBA 10.3.1); legal: %s", from, to, legalFrom(from))
	case !mask.has(t.required):
		return fmt.Errorf("modify from %v to %v: missing attributes %v (required: %v)", from, to, t.required&^mask, t.required)
	case mask&^(t.required|t.optional) != 0:
		return fmt.Errorf("modify from %v to %v: attributes %v are not allowed (required: %v; optional: %v)",
			from, to, mask&^(t.required|t.optional), t.required, t.optional)
	}
	return nil
}

// legalFrom lists the states that a QP in state s may go to.
func legalFrom(s State) string {
	var list string
	for to := Reset; to <= SQE; to++ {
		if _, ok := transitions[[2]State{s, to}]; ok {
			list += to.String() + ", "
		}
	}
	return list + "RESET, ERR"
}
