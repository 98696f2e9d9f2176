package cm

import (
	"fmt"
	"maps"
)

// State is the state of a Conn.
//
//	active                                   passive
//
//	Idle                                     Idle
//	  │ Connect: REQ                           │ REQ: event Request
//	  ▼                                        ▼
//	ReqSent ──MRA──► ReqMRA                  ReqRcvd ──REQ again, Extend: MRA──► MRAReqSent
//	  │ REP: event Reply │                     │ Accept: REP                        │
//	  ▼                  ▼                     ▼                                    ▼
//	RepRcvd ──REP again: MRA──► MRARepSent   RepSent ──MRA──► RepMRA
//	  │ Ready: RTU                │            │ RTU, data      │
//	  └──────────► Established ◄──┴────────────┴────────────────┘
//	   Disconnect: DREQ │ │ DREQ: DREP, event Disconnected
//	                    ▼ ▼
//	                DreqSent ──DREP, DREQ, timeout──► TimeWait ──timeout──► Idle
//
// A REJ, or a timeout after the last repetition, ends a connection before it is Established. Who sends a REJ is in Refused
// for a while, where it repeats it. SIDR is a request and an answer:
//
//	Idle ──Resolve: SIDR_REQ──► SidrReqSent ──SIDR_REP──► Idle
//	Idle ──SIDR_REQ──► SidrReqRcvd ──ReplySIDR: SIDR_REP──► SidrRepSent ──timeout──► Idle
//
// Messages are sent again when their answers don't come, and an answer is sent again when its question comes again. Idle
// is the end of a Conn as well as its beginning: the Manager knows it no more.
type State uint8

// The states (IBA 12.9.5; 12.9.6 for DREQ and TimeWait).
const (
	Idle State = iota
	ReqSent
	ReqMRA
	RepRcvd
	MRARepSent
	ReqRcvd
	MRAReqSent
	RepSent
	RepMRA
	Established
	DreqSent
	TimeWait
	Refused
	SidrReqSent
	SidrReqRcvd
	SidrRepSent
)

var stateNames = [...]string{
	Idle:        "Idle",
	ReqSent:     "REQ Sent",
	ReqMRA:      "REP Wait",
	RepRcvd:     "REP Rcvd",
	MRARepSent:  "MRA(REP) Sent",
	ReqRcvd:     "REQ Rcvd",
	MRAReqSent:  "MRA(REQ) Sent",
	RepSent:     "REP Sent",
	RepMRA:      "RTU Wait",
	Established: "Established",
	DreqSent:    "DREQ Sent",
	TimeWait:    "TimeWait",
	Refused:     "Refused",
	SidrReqSent: "SIDR_REQ Sent",
	SidrReqRcvd: "SIDR_REQ Rcvd",
	SidrRepSent: "SIDR_REP Sent",
}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("invalid state (%d)", uint8(s))
}

// inputKind is what may happen to a Conn.
type inputKind uint8

const (
	gotREQ inputKind = iota // the same again: the first one makes the Conn
	gotMRA
	gotREJ
	gotREP
	gotRTU
	gotDREQ
	gotDREP
	gotLAP
	gotSIDRREQ // the same again
	gotSIDRREP
	timeout
	callConnect
	callAccept
	callReject
	callExtend
	callReady
	callEstablished
	callDisconnect
	callAbandon
	callResolve
	callReplySIDR
)

var inputNames = [...]string{
	gotREQ:          "REQ",
	gotMRA:          "MRA",
	gotREJ:          "REJ",
	gotREP:          "REP",
	gotRTU:          "RTU",
	gotDREQ:         "DREQ",
	gotDREP:         "DREP",
	gotLAP:          "LAP",
	gotSIDRREQ:      "SIDR_REQ",
	gotSIDRREP:      "SIDR_REP",
	timeout:         "timeout",
	callConnect:     "connect",
	callAccept:      "accept",
	callReject:      "reject",
	callExtend:      "extend",
	callReady:       "ready",
	callEstablished: "established",
	callDisconnect:  "disconnect",
	callAbandon:     "abandon",
	callResolve:     "resolve",
	callReplySIDR:   "reply SIDR",
}

func (k inputKind) String() string { return inputNames[k] }

// step is what a Conn does upon an input. It goes to then when do returns true, else to otherwise.
type step struct {
	do        func(*Conn, *input) bool
	then      State
	otherwise State
}

type on struct {
	in   State
	what inputKind
}

// The table of all steps, in four parts: what isn't there is ignored when a peer does it, and an error when the consumer
// does. It is made by functions, as the steps use it.
func activeSteps() map[on]step {
	return map[on]step{
		{Idle, callConnect}:       {(*Conn).sendREQ, ReqSent, Idle},
		{ReqSent, timeout}:        {(*Conn).retryREQ, ReqSent, Refused},
		{ReqSent, gotMRA}:         {(*Conn).extended, ReqMRA, ReqSent},
		{ReqSent, gotREJ}:         {(*Conn).rejected, Idle, ReqSent},
		{ReqSent, gotREP}:         {(*Conn).takeREP, RepRcvd, Refused},
		{ReqSent, callAbandon}:    {(*Conn).abandon, Refused, Refused},
		{ReqMRA, timeout}:         {(*Conn).retryREQ, ReqMRA, Refused},
		{ReqMRA, gotREJ}:          {(*Conn).rejected, Idle, ReqMRA},
		{ReqMRA, gotREP}:          {(*Conn).takeREP, RepRcvd, Refused},
		{ReqMRA, callAbandon}:     {(*Conn).abandon, Refused, Refused},
		{RepRcvd, gotREP}:         {(*Conn).sendMRA, MRARepSent, RepRcvd},
		{RepRcvd, gotREJ}:         {(*Conn).rejected, Idle, RepRcvd},
		{RepRcvd, gotDREQ}:        {(*Conn).answerDREQ, TimeWait, TimeWait},
		{RepRcvd, callExtend}:     {(*Conn).sendMRA, MRARepSent, RepRcvd},
		{RepRcvd, callReady}:      {(*Conn).sendRTU, Established, RepRcvd},
		{RepRcvd, callReject}:     {(*Conn).reject, Refused, RepRcvd},
		{RepRcvd, callAbandon}:    {(*Conn).abandon, Refused, Refused},
		{MRARepSent, gotREP}:      {(*Conn).again, MRARepSent, MRARepSent},
		{MRARepSent, gotREJ}:      {(*Conn).rejected, Idle, MRARepSent},
		{MRARepSent, gotDREQ}:     {(*Conn).answerDREQ, TimeWait, TimeWait},
		{MRARepSent, callReady}:   {(*Conn).sendRTU, Established, MRARepSent},
		{MRARepSent, callReject}:  {(*Conn).reject, Refused, MRARepSent},
		{MRARepSent, callAbandon}: {(*Conn).abandon, Refused, Refused},
	}
}

func passiveSteps() map[on]step {
	return map[on]step{
		{ReqRcvd, gotREQ}:          {(*Conn).sendMRA, MRAReqSent, ReqRcvd},
		{ReqRcvd, gotREJ}:          {(*Conn).rejected, Idle, ReqRcvd},
		{ReqRcvd, timeout}:         {(*Conn).tooLate, Refused, Refused},
		{ReqRcvd, callExtend}:      {(*Conn).sendMRA, MRAReqSent, ReqRcvd},
		{ReqRcvd, callAccept}:      {(*Conn).sendREP, RepSent, ReqRcvd},
		{ReqRcvd, callReject}:      {(*Conn).reject, Refused, ReqRcvd},
		{ReqRcvd, callAbandon}:     {(*Conn).abandon, Refused, Refused},
		{MRAReqSent, gotREQ}:       {(*Conn).again, MRAReqSent, MRAReqSent},
		{MRAReqSent, gotREJ}:       {(*Conn).rejected, Idle, MRAReqSent},
		{MRAReqSent, timeout}:      {(*Conn).tooLate, Refused, Refused},
		{MRAReqSent, callAccept}:   {(*Conn).sendREP, RepSent, MRAReqSent},
		{MRAReqSent, callReject}:   {(*Conn).reject, Refused, MRAReqSent},
		{MRAReqSent, callAbandon}:  {(*Conn).abandon, Refused, Refused},
		{RepSent, gotREQ}:          {(*Conn).again, RepSent, RepSent},
		{RepSent, gotRTU}:          {(*Conn).takeRTU, Established, Established},
		{RepSent, gotMRA}:          {(*Conn).extended, RepMRA, RepSent},
		{RepSent, gotREJ}:          {(*Conn).rejected, TimeWait, RepSent},
		{RepSent, gotDREQ}:         {(*Conn).answerDREQ, TimeWait, TimeWait},
		{RepSent, timeout}:         {(*Conn).retryREP, RepSent, TimeWait},
		{RepSent, callEstablished}: {(*Conn).established, Established, Established},
		{RepSent, callAbandon}:     {(*Conn).abandon, Refused, Refused},
		{RepMRA, gotREQ}:           {(*Conn).again, RepMRA, RepMRA},
		{RepMRA, gotRTU}:           {(*Conn).takeRTU, Established, Established},
		{RepMRA, gotREJ}:           {(*Conn).rejected, TimeWait, RepMRA},
		{RepMRA, gotDREQ}:          {(*Conn).answerDREQ, TimeWait, TimeWait},
		{RepMRA, timeout}:          {(*Conn).retryREP, RepMRA, TimeWait},
		{RepMRA, callEstablished}:  {(*Conn).established, Established, Established},
		{RepMRA, callAbandon}:      {(*Conn).abandon, Refused, Refused},
	}
}

func connectedSteps() map[on]step {
	return map[on]step{
		{Idle, callAbandon}:            {(*Conn).known, Idle, Idle},
		{Idle, callDisconnect}:         {(*Conn).known, Idle, Idle},
		{Established, gotREP}:          {(*Conn).repeatRTU, Established, Established},
		{Established, gotREJ}:          {(*Conn).broken, TimeWait, Established},
		{Established, gotDREQ}:         {(*Conn).answerDREQ, TimeWait, TimeWait},
		{Established, gotLAP}:          {(*Conn).refuseLAP, Established, Established},
		{Established, callEstablished}: {(*Conn).known, Established, Established},
		{Established, callDisconnect}:  {(*Conn).sendDREQ, DreqSent, DreqSent},
		{Established, callAbandon}:     {(*Conn).sendDREQ, DreqSent, DreqSent},
		{DreqSent, gotDREP}:            {(*Conn).takeDREP, TimeWait, TimeWait},
		{DreqSent, gotDREQ}:            {(*Conn).answerDREQ, TimeWait, TimeWait},
		{DreqSent, gotREJ}:             {(*Conn).broken, TimeWait, DreqSent},
		{DreqSent, timeout}:            {(*Conn).retryDREQ, DreqSent, TimeWait},
		{DreqSent, callDisconnect}:     {(*Conn).known, DreqSent, DreqSent},
		{DreqSent, callAbandon}:        {(*Conn).known, DreqSent, DreqSent},
		{TimeWait, gotDREQ}:            {(*Conn).repeatDREP, TimeWait, TimeWait},
		{TimeWait, timeout}:            {(*Conn).timewaitExit, Idle, Idle},
		{TimeWait, callDisconnect}:     {(*Conn).known, TimeWait, TimeWait},
		{TimeWait, callAbandon}:        {(*Conn).known, TimeWait, TimeWait},
		{Refused, gotREQ}:              {(*Conn).again, Refused, Refused},
		{Refused, gotREP}:              {(*Conn).again, Refused, Refused},
		{Refused, timeout}:             {(*Conn).known, Idle, Idle},
		{Refused, callAbandon}:         {(*Conn).known, Refused, Refused},
	}
}

func sidrSteps() map[on]step {
	return map[on]step{
		{Idle, callResolve}:          {(*Conn).sendSIDRREQ, SidrReqSent, Idle},
		{SidrReqSent, gotSIDRREP}:    {(*Conn).takeSIDRREP, Idle, SidrReqSent},
		{SidrReqSent, timeout}:       {(*Conn).retrySIDR, SidrReqSent, Idle},
		{SidrReqSent, callAbandon}:   {(*Conn).known, Idle, Idle},
		{SidrReqRcvd, callReplySIDR}: {(*Conn).sendSIDRREP, SidrRepSent, SidrReqRcvd},
		{SidrReqRcvd, timeout}:       {(*Conn).known, Idle, Idle},
		{SidrReqRcvd, callAbandon}:   {(*Conn).known, Idle, Idle},
		{SidrRepSent, gotSIDRREQ}:    {(*Conn).again, SidrRepSent, SidrRepSent},
		{SidrRepSent, timeout}:       {(*Conn).known, Idle, Idle},
		{SidrRepSent, callAbandon}:   {(*Conn).known, SidrRepSent, SidrRepSent},
	}
}

var transitions = map[on]step{}

func init() {
	for _, part := range []map[on]step{activeSteps(), passiveSteps(), connectedSteps(), sidrSteps()} {
		maps.Copy(transitions, part)
	}
}
