package rocev2

import (
	"context"
	"encoding/json"
	"io"
	"strings"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/control"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/xdp"
	"github.com/urxe/urxe/xdp/afpacket"
)

// Stats is everything that a Port counts, and what it is.
type Stats struct {
	Device    string            `json:"device"`
	Link      string            `json:"link"`                   // "af_xdp", "af_packet" or "mem"
	Rung      string            `json:"rung,omitempty"`         // how the link was opened
	Reasons   []string          `json:"rung_reasons,omitempty"` // what was wrong with each better way
	Trouble   string            `json:"link_trouble,omitempty"` // why nothing, or not all, may come although it is open
	State     string            `json:"state"`
	MTU       int               `json:"mtu"`                             // of the interface, bytes
	ActiveMTU int               `json:"active_mtu"`                      // bytes of payload a packet
	GIDs      []string          `json:"gids"`                            // by index; "" where there is none
	NoGID     int               `json:"addresses_without_gid,omitempty"` // of the interface: the table is full
	PKeys     ib.PKeyTable      `json:"pkeys"`
	QPs       int               `json:"qps"`
	Groups    map[string]int    `json:"multicast_groups,omitempty"` // QPs attached to each
	Counters  map[string]uint64 `json:"counters"`                   // under the names of rxe, where it has one
	Drops     map[string]uint64 `json:"drops"`                      // received packets dropped, by reason; those that happened
	XDP       *XDPStats         `json:"xdp,omitempty"`
	AFPacket  *afpacket.Stats   `json:"af_packet,omitempty"`
}

// XDPStats are about the AF_XDP side of a Port.
type XDPStats struct {
	Info    xdp.Info         `json:"info"`
	Program xdp.ProgramStats `json:"program"`
	Sockets xdp.Stats        `json:"sockets"` // of all queues
}

// Stats gathers the Port's counters.
func (p *Port) Stats() Stats {
	s := Stats{
		Device: p.Name(), Link: "mem", State: p.State().String(), MTU: p.net.MTU(), ActiveMTU: p.ActiveMTU().Bytes(),
		PKeys: p.PKeys(), QPs: p.qps.Len(), Groups: p.groups.counts(),
		Counters: p.namedCounters(), Drops: make(map[string]uint64),
	}
	for _, g := range p.GIDs() {
		name := ""
		if !g.IsZero() {
			name = g.String()
		}
		s.GIDs = append(s.GIDs, name)
	}
	for v, n := range p.Drops() {
		if n > 0 && v != int(wire.Accepted) {
			s.Drops[wire.Verdict(v).String()] = n
		}
	}
	if d := p.netdev; d != nil {
		s.NoGID = d.WithoutGID()
		s.Link, s.Reasons = d.carrier.kind().String(), d.reasons
		d.carrier.describe(&s)
		if err := d.unsynced.Load(); err != nil {
			s.addTrouble("packets to some GIDs don't come: " + (*err).Error())
		}
		if list := d.Rivals(); len(list) > 0 {
			s.addTrouble("packets to it may go to another interface, and be lost: when it was opened, these would answer ARP: " +
				strings.Join(list, ", ") + " (set net.ipv4.conf.all.arp_ignore to 1)")
		}
	}
	return s
}

func (s *Stats) addTrouble(what string) {
	s.Trouble = strings.TrimPrefix(s.Trouble+"; "+what, "; ")
}

func (p *Port) namedCounters() map[string]uint64 {
	c := p.Counters()
	return map[string]uint64{
		"sent_pkts": c.SentPkts, "rcvd_pkts": c.RcvdPkts, "sent_bytes": c.SentBytes, "rcvd_bytes": c.RcvdBytes, "tx_too_long": c.TooLong,
		"duplicate_request": c.DuplicateRequest, "out_of_seq_request": c.OutOfSeqRequest,
		"rcvd_rnr_err": c.RcvdRNRErr, "send_rnr_err": c.SendRNRErr, "rcvd_seq_err": c.RcvdSeqErr,
		"ack_deferred": c.AckDeferred, "retry_exceeded_err": c.RetryExceeded,
		"retry_rnr_exceeded_err": c.RNRRetryExceeded, "send_err": c.LocalErrors,
		"completer_retry_err": c.Timeouts + c.ImpliedNAK + c.RcvdSeqErr, "local_ack_timeout_err": c.Timeouts, "early_probes": c.Probes,
		"implied_nak_seq_err": c.ImpliedNAK, "rdma_sends": c.RDMASends, "rdma_recvs": c.RDMARecvs,
		"nak_invalid_request": c.NAKInvalidRequest, "nak_remote_access": c.NAKRemoteAccess,
		"nak_remote_operation": c.NAKRemoteOp, "nak_sequence": c.NAKSequence,
		"dropped_messages": c.DroppedMessages, "unsent": c.Unsent,
		"read_replays": c.ReadReplays, "atomic_replays": c.AtomicReplays,
		"np_ecn_marked_roce_packets": c.MarkedPkts, "np_cnp_sent": c.CNPSent, "rp_cnp_handled": c.CNPHandled, "link_downed": p.LinkDowned(),
		"multicast_xmit_packets": c.MulticastSent, "multicast_rcv_packets": c.MulticastRcvd, "multicast_rcv_copies": c.MulticastCopies,
	}
}

// commands are what the holder of an interface does for other processes.
func (p *Port) commands() map[string]control.Command {
	return map[string]control.Command{
		"stats": func(_ context.Context, w io.Writer) error {
			e := json.NewEncoder(w)
			e.SetIndent("", "  ")
			return e.Encode(p.Stats())
		},
		"capture": func(ctx context.Context, w io.Writer) error { return p.Record(w, ctx.Done()) },
	}
}
