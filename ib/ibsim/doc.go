// Package ibsim is a client of ibsim, the InfiniBand fabric simulator of
// linux-rdma, that needs no preloaded library: it speaks the simulator's
// datagram protocol over abstract unix sockets or UDP.
//
// A Port attaches to one node of the simulated fabric. ibsim never repeats
// anything and tells a sender when a MAD was lost; the Port takes that for the
// loss it stands for, and repeats requests by its own timers. It reads by a
// goroutine of its own, because ibsim stalls when a client doesn't.
package ibsim
