// Package verbs is RDMA for Go programs: the objects and operations of ibverbs over a RoCEv2 transport in user space.
// Its devices are ordinary network interfaces (Open), opened by AF_XDP, which talk RoCEv2 as the kernel's rdma_rxe and
// RDMA NICs do; or pairs in memory (OpenPair), which need neither privileges nor a network.
//
// # Objects
//
// Names and meanings are those of ibverbs. A Device has one port. A PD groups the memory regions (MR) and queue pairs
// (QP) that work together. A CQ takes the completions (WC) of the work requests of its QPs; a CompChannel lets a program
// sleep until there are some. A memory window (MW) opens a part of a region to peers for a while. QPs are of type RC,
// UC, UD or GSI; an AH says where a datagram of the latter two goes. An SRQ has receives for many QPs.
//
//	ibv_open_device        Open, OpenPair       ibv_create_qp      PD.CreateQP
//	ibv_query_device       Device.Query         ibv_modify_qp      QP.Modify, QP.Connect
//	ibv_query_port         Device.QueryPort     ibv_query_qp       QP.Query
//	ibv_query_gid          Device.QueryGID      ibv_post_send      QP.PostSend
//	ibv_alloc_pd           Device.AllocPD       ibv_post_recv      QP.PostRecv
//	ibv_reg_mr             PD.RegMR             ibv_poll_cq        CQ.Poll
//	ibv_create_cq          Device.CreateCQ      ibv_req_notify_cq  CQ.ReqNotify
//	ibv_create_srq         PD.CreateSRQ         ibv_post_srq_recv  SRQ.PostRecv
//	ibv_modify_srq         SRQ.Modify           ibv_resize_cq      CQ.Resize
//	ibv_create_ah          PD.CreateAH          ibv_init_ah_from_wc  Device.AVFromWC
//	ibv_rereg_mr           MR.Rereg             ibv_alloc_mw       PD.AllocMW
//	ib_alloc_mr (kernel)   PD.AllocMR, OpRegMR  ibv_bind_mw        QP.BindMW
//	ibv_create_comp_channel Device.CreateCompChannel
//	ibv_get_cq_event       CompChannel.Wait     ibv_get_async_event  Device.Events
//	ibv_attach_mcast       QP.AttachMcast       ibv_detach_mcast   QP.DetachMcast (…VLAN: within a VLAN)
//
// QP.Connect joins two QPs that know each other's Endpoint. By IP address and port, as librdmacm does, connects package
// [github.com/urxe/urxe/verbs/rdmacm].
//
// Every method of every object may be called by any goroutine. An object that others are made of can be destroyed when
// those are gone, else its destructor returns ErrBusy and says which; Device.Close destroys everything. Calls on what was
// destroyed return ErrClosed.
//
// # Progress
//
// Work goes on without the program: each queue of the interface has a worker. A goroutine that calls CQ.Poll in a loop
// runs the workers of the CQ's QPs itself meanwhile, which saves waking another thread; so poll in a loop when latency
// matters, and sleep on a CompChannel when the processor does.
//
// A work request's place in its queue is free when its completion has been polled, or, when it makes none, when it has
// ended. A CQ as deep as all the queues that complete in it can't overrun. One that does loses completions: its QPs go
// to ERR, and Device.Events tells CQ_ERR and QP_FATAL.
//
// # Memory
//
// The transport reads and writes the slices that were registered, at any moment that a work request or a peer wants. In
// the terms of the Go memory model:
//
//   - What a goroutine wrote before PostSend is what is sent. It must leave the memory of a send alone until the
//     completion is polled, and that of a receive, a READ or an atomic too.
//   - What a receive, a READ or an atomic brought can be read after its completion was polled.
//   - What a peer WRITEs without a receive being completed here, or updates by atomics, is seen by the accessors MR.Load8,
//     Load32, Load64 and so on, which are atomic. A message's last bytes land last: who sees its last byte, or the aligned
//     word that it ends with, by an accessor may read the rest of it like any memory. The race detector knows all this.
//   - MR.Add64 and MR.CompareAndSwap64 are atomic with a peer's atomics, as is package sync/atomic on the same words.
//
// Dereg and Destroy return when the transport doesn't use the memory, or the QP, any more.
//
// # Errors
//
// Calls return errors that wrap one of this package's sentinels and say on which device and QP, what, and what is
// allowed. What goes wrong with a work request later is the Status of its WC (WC.Err makes it an error); the QP is then in
// ERR, where everything that is posted is flushed. To use it again, take it through RESET and connect it again. A send
// that fails takes a UC, UD or GSI QP to SQE only, where it still receives; Modify to RTS takes it back.
package verbs
