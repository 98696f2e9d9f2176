package wire

import "fmt"

// Verdict is what became of a received packet: accepted, or dropped for
// exactly one reason. Each reason has one counter.
type Verdict uint8

// Verdicts, by who gives them.
const (
	Accepted Verdict = iota

	// By Parse: the packet alone.
	DropNotRoCE   // not Ethernet, IP and UDP to port 4791 as RoCEv2 has it
	DropFragment  // a fragment of an IP packet, or an IPv4 header with options
	DropTruncated // shorter than its headers, or than its IP or UDP length says
	DropOpcode    // an opcode that is not defined, unless it is RC's: see Parse
	DropLength    // pad count or payload impossible for the opcode
	DropVersion   // transport header version (TVer) other than 0
	DropICRC      // the invariant CRC does not hold

	// By the port: whose it is.
	DropNoQP      // no QP of that number
	DropQPState   // the QP is in a state that receives nothing
	DropTransport // an opcode of another transport than the QP's
	DropPKey      // the partition key does not match
	DropQKey      // the queue key does not match
	DropAddress   // source or destination are not those of the QP's connection, or not this port's
	DropVLAN      // it came in another VLAN than the addresses are of, or was tagged, or not
	DropHandover  // the ring to the QP's home worker was full
	DropNotPeer   // the sender is not on the allow-list
	DropNoMember  // to a multicast group that no QP of the port is attached to

	// By the QP: what it asks.
	DropDuplicate  // a request or response seen before; answered again where the rules say so
	DropOutOfOrder // a request ahead of the expected PSN, or a response too far behind one that is missing
	DropNoReplay   // a duplicate READ or atomic whose saved result is gone or does not fit
	DropGhost      // an acknowledgement of something never sent or long acknowledged
	DropUnexpected // a response that fits no outstanding request
	DropRNR        // no receive was posted; RC answers with an RNR NAK
	DropRejected   // a request that may not be; RC answers with an error NAK
	DropResources  // more duplicates than there is room to answer
	DropTooLong    // a message of UC or UD, longer than the receive that would take it
	DropIncomplete // a UC packet inside a message whose beginning was lost
	DropCNP        // a congestion notification that no one waits for

	NumVerdicts
)

var verdicts = [NumVerdicts]string{
	Accepted: "accepted", DropNotRoCE: "not_roce", DropFragment: "ip_fragment", DropTruncated: "truncated",
	DropOpcode: "bad_opcode", DropLength: "bad_length", DropVersion: "bad_tver", DropICRC: "icrc_error",
	DropNoQP: "no_qp", DropQPState: "qp_state", DropTransport: "bad_transport", DropPKey: "bad_pkey",
	DropQKey: "bad_qkey", DropAddress: "bad_address", DropVLAN: "bad_vlan", DropHandover: "handover_full", DropNotPeer: "not_a_peer",
	DropNoMember:  "no_member",
	DropDuplicate: "duplicate", DropOutOfOrder: "out_of_sequence", DropNoReplay: "no_replay",
	DropGhost: "ghost_ack", DropUnexpected: "unexpected_response", DropRNR: "receiver_not_ready",
	DropRejected: "rejected", DropResources: "no_resources", DropTooLong: "too_long",
	DropIncomplete: "incomplete_message", DropCNP: "cnp_ignored",
}

// String gives the name of the verdict's counter.
func (v Verdict) String() string {
	if v < NumVerdicts {
		return verdicts[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}
