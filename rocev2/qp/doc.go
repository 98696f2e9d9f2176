// Package qp is the transport services as pure state machines: the requester
// and the responder of one queue pair, which is a reliable or an unreliable
// connection, or sends datagrams. A QP owns no goroutine, socket or clock.
// Packets, work and the time go in; memory operations, packets, completions and
// the next deadline come out.
package qp
