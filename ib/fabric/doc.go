// Package fabric is an InfiniBand subnet in memory: switches, channel adapters
// and routers that answer subnet and performance management as hardware does,
// forward by the tables that a subnet manager gave them, and send traps. Links
// and nodes fail and return, and MADs get lost, when a test says so.
//
//	Attach ── Inject ─►  directed: hop by hop along the path
//	                     by LID:   port states, SL to VL, forwarding tables
//	                        │
//	                        ▼
//	                     the node's own agents (SMA, PMA) ──► answer, the way back
//	                     or the endpoint there that is its SM
//
// A Fabric has no goroutine, and no clock: Inject carries a packet and
// everything that follows from it before it returns, so that a simulation with
// a time of its own can use it. Open adds timers and a queue and gives a mad.Port.
//
// Not modelled: the lease period of an M_Key never runs out, packets take no
// time, multicast MADs are dropped, and there is no data but MADs.
package fabric
