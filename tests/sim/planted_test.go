package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// planted are faults of the kinds that transports are known for. Each is put
// into a copy of the source, and the simulator has to find it.
var planted = []struct{ name, file, from, to string }{
	{"an ACK before the write", "qp/responder.go",
		"	op.Note.Flags |= flags\n	if p.Len > 0 {",
		"	op.Note.Flags |= flags\n" +
			"	if p.AckReq && i.Place.Ends() && p.PSN%8 == 3 {\n		p.Len = 0 // acknowledged, and not written yet\n	}\n	if p.Len > 0 {"},
	{"a duplicate WRITE is written again", "qp/respond.go",
		"	case wire.OpSend, wire.OpWrite:\n		if p.AckReq || i.Place.Ends() {\n",
		"	case wire.OpSend, wire.OpWrite:\n		if p.Opcode == wire.RCWriteOnly && p.Len > 0 {\n" +
			"			if mr := q.cfg.Keys.Find(p.RKey, q.cfg.PD, p.VA, uint64(p.Len), 0); mr != nil && mr.Bytes() != nil {\n" +
			"				copy(mr.Bytes()[p.VA-mr.IOVA:], p.Payload[0])\n			}\n		}\n		if p.AckReq || i.Place.Ends() {\n"},
	{"an atomic run twice", "qp/respond.go",
		"	case wire.OpCompareSwap, wire.OpFetchAdd, wire.OpAtomicWrite, wire.OpFlush:\n		return q.duplicateAtomic(p)",
		"	case wire.OpCompareSwap, wire.OpFetchAdd, wire.OpAtomicWrite, wire.OpFlush:\n		if mr := q.cfg.Keys.Find(p.RKey, q.cfg.PD, p.VA, 8, 0); mr != nil && mr.Bytes() != nil {\n" +
			"			mr.Bytes()[p.VA-mr.IOVA]++\n		}\n		return q.duplicateAtomic(p)"},
	{"the ICRC isn't checked", "wire/parse.go", "if p.Frame.readICRC(p.end) != p.icrc(&c.last) {", "if p.Frame.readICRC(p.end) != p.icrc(&c.last) && false {"},
	{"a PSN compare off by one", "qp/responder.go", "case d < 0:\n		return q.duplicate(p)", "case d < -1:\n		return q.duplicate(p)"},
	{"a READ resumed at the wrong address", "qp/request.go",
		"h.RKey, h.VA, h.Imm = w.RKey, w.RemoteAddr+off, w.Imm", "h.RKey, h.VA, h.Imm = w.RKey, w.RemoteAddr, w.Imm"},
	{"a READ response put at the wrong place", "qp/ack.go",
		"q.scatter(t.wqe.SGEs, off, p.Len, &p.Payload, op, b)",
		"q.scatter(t.wqe.SGEs, (index&^1)*uint64(q.mtu), p.Len, &p.Payload, op, b)"},
	{"a gap is taken for filled when a part is", "qp/gap.go", "	case x.n == 1:\n", "	case x.n <= 2:\n"},
	{"the held end of a READ is forgotten", "qp/ack.go", "	follows := whole && t.held > 0\n", "	follows := false\n"},
	{"a gap is asked for at the READ's beginning", "qp/gap.go",
		"n := q.requestHeader(t, g.from-t.first, &h)", "n := q.requestHeader(t, 0, &h)"},
	{"a question in vain is the last", "qp/probe.go", "		r.gaps.list[0].asked = 0\n", "		r.gaps.list[0].asked = now\n		r.ackDeadline = clock.Never\n"},
	{"a lost flush completion", "qp/complete.go",
		"	for r.oldest != r.tail {\n		q.completeRequest(WRFlushErr)\n	}\n	for r.cur",
		"	for r.tail-r.oldest > 1 {\n		q.completeRequest(WRFlushErr)\n	}\n	for r.oldest != r.tail {\n		r.oldest++\n		q.cfg.SQ.Retire()\n	}\n	for r.cur"},
	{"an ACK past a READ completes it", "qp/gap.go", "if from >= to || !t.responds() {", "if from >= to || !t.responds() || ack && t.isRead() {"},
	{"a receive completed twice", "qp/responder.go",
		"	if n.Flags&flagReceive != 0 {\n		q.received(n)\n	}", "	if n.Flags&flagReceive != 0 {\n		q.received(n)\n		if n.PSN%64 == 5 && r.head != r.tail {\n			q.received(n)\n		}\n	}"},
	{"no retry after a timeout", "qp/rc.go", "	q.rewind(\"timeout\")\n", "	q.trace(\"timeout\", q.psnOf(r.una))\n"},
	{"the fence is ignored", "qp/requester.go", "case t.wqe.Flags&Fence != 0 && r.rdAtomics > 0:", "case t.wqe.Flags&Fence != 0 && r.rdAtomics > 99:"},
	{"the last packet of a message cut short", "qp/request.go",
		"return int(min(t.length-off, uint64(q.mtu)))", "return int(min(t.length-off, uint64(q.mtu)) &^ 1)"},
	{"UC goes on in the middle of a message", "qp/uc.go", "	case d != 0:\n		q.giveUp(true, RemInvReqErr, b)\n		return wire.DropOutOfOrder\n", ""},
	{"UC takes what comes twice", "qp/uc.go", "if d < 0 && d >= -staleWindow {", "if d < 0 && d >= -staleWindow && place != wire.Only {"},
	{"the receive of a message given up is forgotten", "qp/uc.go", "	if r.msg.wqe != nil {\n		q.leaveReceive(status, b)\n	}\n", ""},
	{"the Q_Key isn't checked", "qp/ud.go", "	case p.QKey != q.attr.QKey: // IBA 9.8.3.1\n		return wire.DropQKey\n", ""},
	{"sends go on after one that failed", "qp/complete.go", "	if q.svc.sendError == SQE {\n		q.enterSQE()\n		return\n	}\n", "	if q.svc.sendError == SQE {\n		return\n	}\n"},
	{"a datagram's payload behind the wrong header", "qp/ud.go", "q.scatter(w.SGEs, GRHLen, p.Len,", "q.scatter(w.SGEs, GRHLen+uint64(p.Len&1), p.Len,"},
	{"a member on another worker is left out", "multicast.go", "case i == w.index || len(there) == 0:", "case i == w.index || len(there) == 0 || i == 1:"},
	{"no copy for members of the sender's port", "multicast.go", "	slot.copy, slot.copied = w.copy.frame, true\n	w.copy.room = 0\n", ""},
	{"a sender's own copy that it doesn't want", "multicast.go", "return q.blockSelf && p.SrcQP == q.number", "return false"},
	{"a QP that was detached stays a member", "multicast.go", "	t.set(k, left)\n", "	if left == nil {\n		t.set(k, left)\n	}\n"},
	{"a window's protection domain isn't checked", "mem/table.go", "m.Key != key || m.PD != pd ||", "m.Key != key || m.PD != pd && m.more == nil ||"},
	{"a window ends too late", "mem/mr.go", "return off <= m.Length && n <= m.Length-off\n", "return off <= m.Length && (n <= m.Length-off || m.more != nil && n <= m.Length-off+8)\n"},
	{"a window is open when it was invalidated", "mem/slot.go", "	if err == nil {\n		was = t.leave(s)\n	}\n", "	if err == nil {\n		was = &s.idle\n	}\n"},
	{"a window of type 2 is for the peers of all QPs", "mem/table.go", "	if m == nil || m.more != nil && m.more.only != nil && m.more.only != by {\n", "	if m == nil {\n"},
	{"windows outlive their QP", "qp/complete.go", "	q.cfg.Keys.FreeOwned(q)\n", ""},
	{"what could not be written is acknowledged", "qp/qp.go", "	case op.Status != mem.OK:\n		q.svc.fault(q, op)\n		return\n", ""},
	{"an immediate of the message before", "qp/responder.go", "c.Flags, c.Imm = WCWithImm, n.X", "c.Flags, c.Imm = WCWithImm, n.X&^1"},
	{"a receive of the SRQ given twice", "srq.go",
		"		if r.next.CompareAndSwap(n, n+1) {", "		if n%8 == 3 && s.used.Load()%2 == 0 || r.next.CompareAndSwap(n, n+1) {"},
	{"the SRQ is flushed with a QP", "qp/complete.go",
		"	if q.cfg.SharedRQ {\n		return nil\n	}\n	return q.takeReceive()", "	return q.takeReceive()"},
	{"LAST_WQE_REACHED before the last completion", "qp.go", "		q.recvCQ.push() // before", "		// before"},
	{"a destroyed QP keeps receives of the SRQ", "qp.go", "	q.core.Release()\n", ""},
	{"a receive that a destroyed QP held is lost", "srq.go", "		s.repost(p)\n", "		s.Free(1)\n"},
	{"a resize of the SRQ forgets a receive", "srq.go", "	for i := from; i != to; i++ {\n", "	if to-from > 3 {\n		from++\n	}\n	for i := from; i != to; i++ {\n"},
}

// Who changes the source sees at once, and not with the next long run, that a fault
// has no place there any more.
func TestFaultsHaveAPlace(t *testing.T) {
	for _, f := range planted {
		if _, _, err := plant(f.file, f.from, f.to); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
	}
}

// TestPlantedFaults builds the simulator with each fault in turn. The source
// itself isn't touched: the compiler gets an overlay.
func TestPlantedFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the simulator once per fault")
	}
	for _, f := range planted {
		t.Run(strings.ReplaceAll(f.name, " ", "-"), func(t *testing.T) {
			bin := build(t, f.file, f.from, f.to)
			out, err := exec.Command(bin, "-test.run=^TestSeeds$", "-seeds=1000").CombinedOutput()
			if err == nil {
				t.Fatalf("1000 seeds have not found it")
			}
			if !strings.Contains(string(out), "violation") && !strings.Contains(string(out), "panic") {
				t.Fatalf("the run failed for another reason: %v\n%s", err, out)
			}
			t.Logf("found: %.300s", out)
		})
	}
}

// plant returns the path of a file of rocev2, and what it holds with from replaced by to.
func plant(file, from, to string) (path, source string, err error) {
	path, err = filepath.Abs(filepath.Join("..", "..", "rocev2", file))
	if err != nil {
		return "", "", err
	}
	b, err := os.ReadFile(path)
	if n := strings.Count(string(b), from); err == nil && n != 1 {
		err = fmt.Errorf("%s has %d places to plant the fault, want 1: bring it up to date", file, n)
	}
	return path, strings.Replace(string(b), from, to, 1), err
}

// build makes the test binary with from replaced by to in a file of rocev2.
func build(t *testing.T, file, from, to string) string {
	t.Helper()
	path, source, err := plant(file, from, to)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	changed, overlay, bin := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "sim.test")
	write(t, changed, []byte(source))
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, overlay, list)
	if out, err := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
