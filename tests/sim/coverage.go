package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// Coverage counts what runs have met: verdicts, counters, and what the QPs
// traced. A kind of fault that no run meets isn't tested.
type Coverage struct {
	Verbose bool // print what happens
	met     map[string]uint64
}

// NewCoverage makes an empty one.
func NewCoverage() *Coverage { return &Coverage{met: map[string]uint64{}} }

func (c *Coverage) hook() qp.Trace {
	return func(q *qp.QP, what string, psn ib.PSN) {
		c.met["trace "+what]++
		if c.Verbose {
			fmt.Printf("             QP %v: %s, PSN %v\n", q.Number(), what, psn)
		}
	}
}

// Merge adds what o has.
func (c *Coverage) Merge(o *Coverage) {
	for k, n := range o.met {
		c.met[k] += n
	}
}

// collect adds a port's counters.
func (c *Coverage) collect(p *rocev2.Port) {
	for v, n := range p.Drops() {
		c.met["verdict "+wire.Verdict(v).String()] += n
	}
	n := p.Counters()
	for name, v := range map[string]uint64{
		"duplicate_request": n.DuplicateRequest, "out_of_seq_request": n.OutOfSeqRequest, "rcvd_rnr_err": n.RcvdRNRErr,
		"send_rnr_err": n.SendRNRErr, "rcvd_seq_err": n.RcvdSeqErr, "implied_nak": n.ImpliedNAK, "timeouts": n.Timeouts, "early_probes": n.Probes,
		"ack_deferred": n.AckDeferred, "retry_exceeded_err": n.RetryExceeded, "retry_rnr_exceeded_err": n.RNRRetryExceeded,
		"send_err": n.LocalErrors, "nak_invalid_request": n.NAKInvalidRequest, "nak_remote_access": n.NAKRemoteAccess,
		"nak_remote_operation": n.NAKRemoteOp, "nak_sequence": n.NAKSequence, "read_replays": n.ReadReplays,
		"atomic_replays": n.AtomicReplays, "np_ecn_marked_roce_packets": n.MarkedPkts, "np_cnp_sent": n.CNPSent,
		"rp_cnp_handled": n.CNPHandled,
	} {
		c.met["counter "+name] += v
	}
}

// elsewhere are the verdicts that simulated peers can't bring about: a ring
// between workers that overflows, which takes two that run at once
// (TestFullHandover).
var elsewhere = []wire.Verdict{wire.DropHandover}

// Missing returns what no run has met.
func (c *Coverage) Missing() (missing []string) {
	want := []string{
		"trace timeout", "trace sequence NAK", "trace implied NAK", "trace RNR NAK", "trace rnr wait over",
		"trace retries exceeded", "trace probe", "trace refused", "trace message given up", "window bound",
		"drain that ended in ERR", "window invalidated by the peer", "window invalidated in use", "trace send queue error", "SRQ limit",
		"window used past its end", "window of another PD used", "window of another QP used", "window used after its end",
		"QP to ERR in a flood", "QP destroyed in a flood", "QP reset in a flood", "QP modified in a flood",
		"memory deregistered in a flood", "process gone in a flood", "lost as the link was down", "window freed with its QP",
		"receive of the SRQ lost with its message",
	}
	for v := range wire.NumVerdicts {
		if !slices.Contains(elsewhere, v) {
			want = append(want, "verdict "+v.String())
		}
	}
	for k := range c.met {
		if strings.HasPrefix(k, "counter ") {
			want = append(want, k)
		}
	}
	for _, k := range want {
		if c.met[k] == 0 {
			missing = append(missing, k)
		}
	}
	slices.Sort(missing)
	return missing
}

// String lists everything with its count.
func (c *Coverage) String() string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(c.met)) {
		fmt.Fprintf(&b, "%12d  %s\n", c.met[k], k)
	}
	return b.String()
}
