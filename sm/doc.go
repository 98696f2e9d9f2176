// Package sm is a subnet manager: it finds the nodes of an InfiniBand subnet,
// gives them LIDs, routes, and keeps the subnet up.
//
// Manager is the pure core. It owns no goroutine, socket or clock: packets and
// the time go in by Handle and Expire, packets to send come out of Next, and
// Deadline says when to call Expire next. Runner drives it over a mad.Port.
//
// # The way of a sweep
//
//	 idle ──► discover ──► decide ──► configure ──► activate ──► idle
//	            ▲            │
//	            └─ refresh   └──► standby (another, higher SM is master)
//
//	discover   NodeInfo along every link that is up, then what the node is and
//	           the state of its ports. A sweep is heavy (everything anew) or a
//	           refresh (only the switches that reported a change).
//	decide     LIDs, link parameters, routing; no packets
//	configure  what differs from what a node has: ports, tables, lanes
//	activate   ports from ARMED to ACTIVE
//
// A phase ends when all its requests are answered or given up. What a node has
// is taken from its answers alone, never from what was asked of it. The subnet
// is "up" only when nothing is missing; else the report says what is, and the
// manager tries that again soon.
//
// # Traps
//
// All are answered. One that comes more than ten times in a row, with no pause
// of five seconds between, says nothing new and is acted on once a second.
//
//	128        the switch is read again
//	129 to 131 told; more than ten in a row, and nothing is routed over the link
//	           until it has been quiet for a minute (sick.go)
//	144, 145   the node alone is read again: it may be a subnet manager's now
//	256 to 259 told, with who sent what to whom
package sm
