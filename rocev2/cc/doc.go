// Package cc is the congestion control of RoCEv2, DCQCN: Zhu et al., Congestion
// Control for Large-Scale RDMA Deployments, SIGCOMM 2015, with the parameters of
// that paper or of NVIDIA's cards.
//
// Three parties take part. The congestion point, a switch, marks packets that
// find its queue long (ECN, IP's CE). The notification point, the receiver, tells
// their sender with a congestion notification packet, a CNP (Annex A17.9.3). The
// reaction point, the sender, cuts its rate and wins it back:
//
//	             CNP: the target is the rate, the rate is cut by α/2
//	  ┌──────────────────────────────┬───────────────────────┐
//	  │                              │                       │
//	  ▼     F events of              │     more than F of    │
//	Fast    the timer or      Additive     both          Hyper
//	recovery ── the bytes ──► increase ── kinds ───────► increase
//	rate half way             target + AI,               target + HAI,
//	to the target             rate half way to it        rate half way to it
//	  ▲                              │                       │
//	  │ CNP                          │ rate is the line's    │
//	Unlimited ◄──────────────────────┴───────────────────────┘
//
// α, between 0 and 1, is how congested the path is: each CNP moves it towards 1,
// and each period without one towards 0.
//
// The package is pure: the time is an argument, timers are looked at when
// something else is, nothing is allocated. A Notifier and a Limiter belong to one
// QP each, and to whoever holds its worker.
package cc
