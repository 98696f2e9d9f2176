// Package rdmacm connects queue pairs by IP address and port, as librdmacm and the kernel's rdma_cm do, and speaks their
// protocol: that of the InfiniBand communication manager over QP1, with the RDMA IP CM service of its Annex A11. So a
// peer may be any program that uses librdmacm.
//
// A listener takes requests, each of which is accepted with a QP or rejected; Dial asks. Both give a Conn whose QP is
// connected:
//
//	rdma_bind_addr, rdma_listen     Listen, ListenUD
//	rdma_get_request                Listener.Accept
//	rdma_accept                     Request.Accept, Request.AcceptUD
//	rdma_reject                     Request.Reject
//	rdma_resolve_*, rdma_connect    Dial; ResolveUD for datagrams
//	rdma_disconnect                 Conn.Disconnect
//	RDMA_CM_EVENT_DISCONNECTED      Conn.Done
//
// The QP is the program's own: it makes it, and destroys it after the connection. Post receives in INIT (QP.ToInit) before
// Dial or Accept, as a peer may send at once; a QP in RESET is taken to INIT, too.
//
// While a device has listeners, connections, or ones that have ended a moment ago, its QP1 belongs to this package.
//
// What goes wrong is an error of package verbs, a *RejectedError when the peer refused, or ErrUnreachable when nobody
// answered.
package rdmacm
