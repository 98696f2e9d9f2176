// Package qp is the transport services as pure state machines: the requester
// and the responder of one queue pair, which is a reliable or an unreliable
// connection, or sends datagrams. A QP owns no goroutine, socket or clock.
// Packets, work and the time go in; memory operations, packets, completions and
// the next deadline come out.
//
//	the QP               qp.go; what it is given and gives: api.go, attr.go; its states: state.go, modify.go
//	types of service     service.go, rc.go, uc.go, ud.go
//	requester            requester.go, request.go, operation.go, ack.go, credit.go, local.go
//	what is sent again   retry.go, probe.go, gap.go
//	responder            responder.go, respond.go, read.go, atomic.go, placed.go
//	both                 sge.go, complete.go, congestion.go
package qp
