package qp

import (
	"fmt"
	"maps"
)

// State is the state of a QP, numbered as ibv_qp_state.
//
//	        modify             modify           modify
//	RESET ─────────► INIT ─────────► RTR ─────────► RTS ◄────────► SQD
//	  ▲                                            │ ▲ │  modify
//	  │ modify             a send fails: UC and UD │ │ │ error, modify
//	  │                                          SQE─┘ │
//	  └───────────── ERR ◄───────── any state ◄────────┘
//
// INIT takes receives; RTR also hears the peer; RTS also sends. SQD sends
// nothing new and lets what is in flight end. SQE flushes sends and goes on
// receiving. ERR flushes every work request.
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

// Receives reports whether packets of the peer are taken in state s.
func (s State) Receives() bool { return s == RTR || s == RTS || s == SQD || s == SQE }

// sends reports whether requests are made in state s; those begun, at least.
func (s State) sends() bool { return s == RTS || s == SQD }

// transition is one legal move of ibv_modify_qp with the attributes it must
// and may have (IBA 11.2.5.2, table 92).
type transition struct{ required, optional AttrMask }

// transitions are the legal moves of a type of QP. Every state may also go to
// RESET and ERR.
type transitions map[[2]State]transition

const (
	// Of connected QPs: what may change while there is a connection.
	connAttrs = AttrAccess | AttrCurState | AttrAltPath | AttrPathMigState
	rcAttrs   = connAttrs | AttrMinRNRTimer
	// Of datagram QPs.
	udAttrs = AttrCurState | AttrQKey
)

var rcTransitions = transitions{
	{Reset, Init}: {AttrPKeyIndex | AttrPort | AttrAccess, 0},
	{Init, Init}:  {0, AttrPKeyIndex | AttrPort | AttrAccess},
	{Init, RTR}: {AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN | AttrMaxDestRdAtomic | AttrMinRNRTimer,
		AttrAltPath | AttrAccess | AttrPKeyIndex},
	{RTR, RTS}: {AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrSQPSN | AttrMaxRdAtomic, rcAttrs},
	{RTS, RTS}: {0, rcAttrs},
	{RTS, SQD}: {0, AttrSQDAsyncNotify},
	{SQD, SQD}: {0, rcAttrs | AttrAV | AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxRdAtomic |
		AttrMaxDestRdAtomic | AttrPKeyIndex | AttrPort},
	{SQD, RTS}: {0, rcAttrs},
}

var ucTransitions = transitions{
	{Reset, Init}: {AttrPKeyIndex | AttrPort | AttrAccess, 0},
	{Init, Init}:  {0, AttrPKeyIndex | AttrPort | AttrAccess},
	{Init, RTR}:   {AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN, AttrAltPath | AttrAccess | AttrPKeyIndex},
	{RTR, RTS}:    {AttrSQPSN, connAttrs},
	{RTS, RTS}:    {0, connAttrs},
	{RTS, SQD}:    {0, AttrSQDAsyncNotify},
	{SQD, SQD}:    {0, connAttrs | AttrAV | AttrPKeyIndex},
	{SQD, RTS}:    {0, connAttrs},
	{SQE, RTS}:    {0, AttrCurState | AttrAccess},
}

// A datagram QP has no peer to be told of.
var udTransitions = transitions{
	{Reset, Init}: {AttrPKeyIndex | AttrPort | AttrQKey, 0},
	{Init, Init}:  {0, AttrPKeyIndex | AttrPort | AttrQKey},
	{Init, RTR}:   {0, AttrPKeyIndex | AttrQKey},
	{RTR, RTS}:    {AttrSQPSN, udAttrs},
	{RTS, RTS}:    {0, udAttrs},
	{RTS, SQD}:    {0, AttrSQDAsyncNotify},
	{SQD, SQD}:    {0, AttrPKeyIndex | AttrQKey},
	{SQD, RTS}:    {0, udAttrs},
	{SQE, RTS}:    {0, udAttrs},
}

// QP1 is of a port from its beginning; else it is as UD.
var gsiTransitions = func() transitions {
	t := maps.Clone(udTransitions)
	t[[2]State{Reset, Init}] = transition{AttrPKeyIndex | AttrQKey, 0}
	t[[2]State{Init, Init}] = transition{0, AttrPKeyIndex | AttrQKey}
	return t
}()

// checkTransition says whether a QP may go from one state to another with the
// attributes of mask, and if not, why.
func (s *service) checkTransition(from, to State, mask AttrMask) error {
	mask &^= AttrState
	t, ok := s.legal[[2]State{from, to}]
	if to == Reset || to == Err {
		t, ok = transition{}, true
	}
	switch {
	case !ok:
		return fmt.Errorf("modify %s from %v to %v: not a legal transition (IBA 10.3.1); legal: %s", s.name, from, to, s.legal.from(from))
	case !mask.has(t.required):
		return fmt.Errorf("modify %s from %v to %v: missing attributes %v (required: %v)", s.name, from, to, t.required&^mask, t.required)
	case mask&^(t.required|t.optional) != 0:
		return fmt.Errorf("modify %s from %v to %v: attributes %v are not allowed (required: %v; optional: %v)",
			s.name, from, to, mask&^(t.required|t.optional), t.required, t.optional)
	}
	return nil
}

// Required returns what a QP of type t has to be told when it goes from one state
// to another: AttrState, and what IBA 11.2.5.2 requires with it.
func (t Type) Required(from, to State) AttrMask {
	return AttrState | t.service().legal[[2]State{from, to}].required
}

// from lists the states that a QP in state s may go to.
func (t transitions) from(s State) string {
	var list string
	for to := Reset; to <= SQE; to++ {
		if _, ok := t[[2]State{s, to}]; ok {
			list += to.String() + ", "
		}
	}
	return list + "RESET, ERR"
}
