// Package qp is the reliable connected transport as pure state machines: the
// requester and the responder of one queue pair. A QP owns no goroutine, socket
// or clock. Packets, work and the time go in; memory operations, packets,
// completions and the next deadline come out.
package qp
