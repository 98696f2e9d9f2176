package golden

import (
	"path"
	"strings"
	"testing"

	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// known is a difference between rxe and this device.
type known struct {
	captures string // a pattern of path.Match
	what     string // as differences says it
	times    int    // in each of them
	why      string
}

const (
	ecnBits   = "the low two bits are those of ECN, not of the address vector (RFC 3168): set without congestion control they would ask for marks that no one heeds"
	flowLabel = "rxe leaves the flow label of the address vector out of the IPv6 header, where the specification has it (IBA 8.3, Annex A17)"
)

// answers are the differences between what rxe answered in the captures and
// what this device answers to the same requests.
var answers = []known{
	{"k612_nak_send_long_*v4", "rxe NAK, remote operational error; urxe NAK, invalid request", 1,
		"a SEND longer than the receive is an invalid request (IBA table 63)"},
	{"k612_mw[12]_v[46]", "rxe ACK; urxe NAK, remote access error", 1,
		"the last WRITE goes past the end of the window (IBA 10.6.7); rxe looks at the range of the region that it is bound to"},
	{"k612_rnr_v[46]", "rxe NAK, PSN sequence error; urxe nothing", 7,
		"after an RNR NAK all requests are dropped until the one that it names comes again: no other NAK is due (IBA 9.7.5.2.8)"},
	{"k612_rnr_imm_v4", "rxe ACK, ACK; urxe nothing", 1,
		"the duplicates neither end a message nor ask for an acknowledgement (IBA 9.7.5.1.2): see qp.duplicate"},
	{"k612_send_imm_tc6a_*v[46]", "rxe TClass 0x6a; urxe 0x68", 5, ecnBits},
	{"k612_send_imm_tc6a_fl_v6", "rxe FlowLabel 0x0; urxe 0x54321", 5, flowLabel},
}

// requests are the differences between the requests of the captures and those
// that this device makes of the same work requests.
var requests = []known{
	{"k612_send_imm_tc6a_*v[46]", "rxe TClass 0x6a; urxe 0x68", 9, ecnBits},
	{"k612_send_imm_tc6a_fl_v6", "rxe FlowLabel 0x0; urxe 0x54321", 9, flowLabel},
}

// account holds what captures show against a table.
type account struct {
	t     *testing.T
	table []known
	used  []bool // by entry: a capture has it
}

func newAccount(t *testing.T, table []known) *account {
	return &account{t, table, make([]bool, len(table))}
}

// settle compares what was found in a capture with what the table has of it.
func (a *account) settle(t *testing.T, name string, found map[string]int) {
	t.Helper()
	for i, k := range a.table {
		if fits, err := path.Match(k.captures, name); err != nil || !fits {
			continue
		}
		a.used[i] = true
		if n := found[k.what]; n != k.times {
			t.Errorf("%d times, the table says %d: %s", n, k.times, k.what)
		}
		delete(found, k.what)
	}
	for what, n := range found {
		t.Errorf("%d times, and the table doesn't have it: %s", n, what)
	}
}

// close reports the entries that no capture is of.
func (a *account) close() {
	for i, k := range a.table {
		if !a.used[i] {
			a.t.Errorf("there is no capture %s, which should have: %s", k.captures, k.what)
		}
	}
}

// notTalks are captures that aren't what two hosts said to each other.
var notTalks = map[string]string{
	"vectors": "packets made one by one for their ICRC: no request has its answer",
}

// TestReplay has QPs of ours asked what the QPs of rxe were asked, and compares
// the answers packet by packet, and what completed and was written besides.
func TestReplay(t *testing.T) {
	table, did := newAccount(t, answers), map[string]int{}
	for _, file := range files(t) {
		name := strings.TrimSuffix(file, ".pcap")
		t.Run(name, func(t *testing.T) { replayCapture(t, name, table, did) })
	}
	table.close()
	t.Logf("packets: %v", did)
	for _, kind := range []string{"RC requests", "RC answers", "UC requests", "UD requests", "MADs to QP1", "multicast datagrams", "of no talk"} {
		if did[kind] == 0 {
			t.Errorf("no capture has %s", kind)
		}
	}
}

// replayCapture counts in did what it did with each packet.
func replayCapture(t *testing.T, name string, table *account, did map[string]int) {
	packets := load(t, name+".pcap")
	if why := notTalks[name]; why != "" {
		t.Logf("%d packets given to a port without QPs, as they are no talk: %s", len(packets), why)
		did["of no talk"] += len(packets)
		refuseAll(t, packets, wire.DropNoQP)
		return
	}
	found, count := map[string]int{}, 0
	for _, k := range talks(t, name, packets) {
		count += len(k.packets)
		if len(k.requests()) == 0 {
			t.Errorf("%v: %d answers to no request", k, len(k.packets))
			continue
		}
		for kind, n := range replayTalk(t, name, k, found) {
			did[kind] += n
		}
	}
	if count != len(packets) {
		t.Errorf("%d of %d packets were replayed", count, len(packets))
	}
	table.settle(t, name, found)
}

func replayTalk(t *testing.T, name string, k *talk, found map[string]int) map[string]int {
	t.Helper()
	n := len(k.requests())
	s := newStage(t, name, k)
	sent, drops := s.replay()
	for what, n := range differences(k.responses(), sent) {
		found[what] += n
	}
	s.wantRefused()
	t.Logf("%v: %d requests, %d of them dropped %v, %d answers", k, n, total(drops), drops, len(sent))
	switch {
	case k.qpn == 1:
		s.wantDrops(drops, wire.DropQKey, func(*packet) bool { return false })
		return map[string]int{"MADs to QP1": n}
	case k.group():
		s.wantDrops(drops, wire.DropQKey, func(*packet) bool { return false })
		return map[string]int{"multicast datagrams": n}
	case k.transport == wire.UD:
		s.wantDrops(drops, wire.DropQKey, func(p *packet) bool { return p.QKey != k.packets[0].QKey })
		return map[string]int{"UD requests": n}
	case k.transport == wire.UC:
		s.wantDrops(drops, wire.DropQKey, func(*packet) bool { return false })
		return map[string]int{"UC requests": n}
	}
	return map[string]int{"RC requests": n, "RC answers": len(sent)}
}

// wantRefused checks the completion of the receive whose message was refused,
// if there was one: it is the last.
func (s *stage) wantRefused() {
	s.t.Helper()
	if s.scene.recvErr != qp.Success && len(s.cq.got) > 0 && s.cq.got[0].Status == s.scene.recvErr {
		s.cq.got = s.cq.got[1:]
	} else if s.scene.recvErr != qp.Success {
		s.t.Errorf("%v: no receive ended with %v", s.talk, s.scene.recvErr)
	}
	if len(s.cq.got) > 0 {
		s.t.Errorf("%v: completions of no message: %+v", s.talk, s.cq.got)
	}
}

func total(drops map[wire.Verdict]int) (n int) {
	for _, d := range drops {
		n += d
	}
	return n
}

// wantDrops checks what an unreliable QP drops: some of the requests, for one reason.
func (s *stage) wantDrops(drops map[wire.Verdict]int, why wire.Verdict, some func(*packet) bool) {
	s.t.Helper()
	want := 0
	for _, p := range s.requests() {
		if some(p) {
			want++
		}
	}
	if drops[why] != want || total(drops) != want {
		s.t.Errorf("%v: dropped %v, want %d as %v", s.talk, drops, want, why)
	}
}

// refuseAll gives packets to a port that has no QP for them.
func refuseAll(t *testing.T, packets []*packet, why wire.Verdict) {
	t.Helper()
	for _, p := range packets {
		b := newBench(t, reverse(p.flow))
		if v, sent := b.give(p); v != why || len(sent) > 0 {
			t.Errorf("packet %d (%v): %v, answered by %v; want %v", p.n, p, v, sent, why)
		}
	}
}
