// Package cm is the communication manager of InfiniBand (IBA chapter 12): it connects queue pairs, disconnects them, and
// resolves services to the numbers of UD queue pairs (SIDR).
//
// A Manager is pure. It gets datagrams that came to QP1 (Receive), calls of its consumer (Listen, Connect, Accept …) and
// the time; it gives datagrams to send (Next), events (Event) and the time at which it wants to be called again (Deadline,
// Expire). It doesn't touch queue pairs: a Conn says what the consumer has to move its own to (Conn.Peer).
//
// What a Conn does when is one table, transitions, in state.go, with a diagram of it.
//
// Nothing that a peer sends can make it keep more than Config allows: a REQ beyond that is refused with "no resources",
// and any other message that no Conn waits for is answered without keeping anything, or dropped.
package cm
