package ibsim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/ibsim/ibsimtest"
	"github.com/urxe/urxe/ib/internal/porttest"
	"github.com/urxe/urxe/ib/mad"
)

// ask sends a request of subnet administration until it is answered.
func ask(t *testing.T, p *Port, attr mad.AttributeID, mask uint64, fill func(record []byte)) mad.MAD {
	t.Helper()
	for tid := range uint64(100) {
		l, err := p.Local()
		if err != nil {
			t.Fatal(err)
		}
		if l.SMLID == 0 {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		q := &mad.Packet{Addr: mad.Addr{LID: l.SMLID, QPN: 1, SL: l.SMSL}, Timeout: 200 * time.Millisecond}
		q.MAD().InitSA(mad.MethodGet, attr, mask)
		q.MAD().SetTID(tid + 1)
		if fill != nil {
			fill(q.MAD().Data())
		}
		if err := p.Send(q); err != nil {
			t.Fatal(err)
		}
		if r := recvKey(t, p, uint32(tid+1)); r.Err == nil {
			return append(mad.MAD(nil), r.MAD()...)
		}
	}
	t.Fatalf("attribute 0x%x: subnet administration does not answer", uint16(attr))
	return nil
}

// Records that stock opensm answers with are what they should be: the layouts
// are the same on both sides.
func TestQueriesOfOpenSM(t *testing.T) {
	s := ibsimtest.Start(t, "testdata/ft32.net")
	s.Background("h9", "opensm", "-f", "osm.log")
	p := open(t, Options{SockName: s.Name, Node: "h3"})
	m := ask(t, p, mad.AttrClassPortInfo, 0, nil)
	if v := mad.ClassPortInfo(m.Data()); m.Status() != mad.StatusOK || v.BaseVersion() != 1 || v.ClassVersion() != 2 || v.RespTimeValue() != 0x10 {
		t.Errorf("ClassPortInfo: %v, version %d.%d, response time %d", m.Status(), v.BaseVersion(), v.ClassVersion(), v.RespTimeValue())
	}
	l, err := p.Local()
	if err != nil {
		t.Fatal(err)
	}
	const lidComponent = 1
	m = ask(t, p, mad.AttrNodeRecord, lidComponent, func(b []byte) { mad.NodeRecord(b).SetLID(l.SMLID) })
	node := mad.NodeRecord(m.Data())
	if node.LID() != l.SMLID || node.NodeInfo().PortGUID() != 0x100013 || node.Description() != "h9" || node.NodeInfo().NodeType() != mad.NodeCA {
		t.Errorf("NodeRecord of the SM: %v, LID %d, %v, %q", m.Status(), node.LID(), node.NodeInfo().PortGUID(), node.Description())
	}
	checkPath(t, p, l.LID, l.SMLID)
	m = ask(t, p, mad.AttrPortInfoRecord, lidComponent, func(b []byte) { mad.PortInfoRecord(b).SetEndportLID(l.LID) })
	if v := mad.PortInfoRecord(m.Data()); v.EndportLID() != l.LID || v.PortInfo().LID() != l.LID || v.PortInfo().PortState() != ib.PortActive ||
		v.PortInfo().MasterSMLID() != l.SMLID {
		t.Errorf("PortInfoRecord of this port: %v, %x", m.Status(), []byte(v))
	}
	m = ask(t, p, mad.AttrNodeRecord, lidComponent, func(b []byte) { mad.NodeRecord(b).SetLID(9999) })
	if m.Status() != mad.StatusSANoRecords {
		t.Errorf("NodeRecord of a LID that is not there: %v", m.Status())
	}
}

func checkPath(t *testing.T, p *Port, from, to ib.LID) {
	t.Helper()
	l := mad.PathRecord(nil).Layout()
	mask := uint64(1)<<l.Component("SLID") | 1<<l.Component("DLID") | 1<<l.Component("NumbPath")
	m := ask(t, p, mad.AttrPathRecord, mask, func(b []byte) {
		v := mad.PathRecord(b)
		v.SetSLID(from)
		v.SetDLID(to)
		v.SetNumbPath(1)
	})
	v := mad.PathRecord(m.Data())
	if m.Status() != mad.StatusOK || v.SLID() != from || v.DLID() != to || v.PKey() != ib.PKeyDefault || v.MTU() != ib.MTU2048 ||
		v.Rate() != ib.Rate10Gbps || v.SL() != 0 || v.SGID().String() != "fe80::10:7" || v.DGID().String() != "fe80::10:13" || !v.Reversible() {
		t.Errorf("PathRecord: %v: %v to %v, SLID %d, DLID %d, %v, MTU %v, rate %v", m.Status(), v.SGID(), v.DGID(), v.SLID(), v.DLID(), v.PKey(), v.MTU(), v.Rate())
	}
}

// Stock sminfo asks us, who answer as a subnet manager does.
func TestSminfoAsksUs(t *testing.T) {
	s := ibsimtest.Start(t, "testdata/ft32.net")
	if out, err := s.Tool("h9", "opensm", "-o", "-f", "osm.log"); err != nil {
		t.Fatalf("opensm: %v\n%s", err, out)
	}
	p := open(t, Options{SockName: s.Name, Node: "h9", SM: true})
	l, err := p.Local()
	if err != nil {
		t.Fatal(err)
	}
	go answerSMInfo(p, l)
	out, err := s.Tool("h5", "sminfo", fmt.Sprint(l.LID))
	want := fmt.Sprintf("sm lid %d sm guid 0x%x, activity count 77 priority 11 state 3 SMINFO_MASTER", l.LID, uint64(l.GUID))
	if err != nil || !strings.Contains(out, want) {
		t.Errorf("sminfo: %v, want %q:\n%s", err, want, out)
	}
}

// answerSMInfo is a subnet manager of few words. It ends when the port closes.
func answerSMInfo(p *Port, l mad.Local) {
	var ps [8]mad.Packet
	for {
		n, err := p.Recv(ps[:])
		if err != nil {
			return
		}
		for i := range ps[:n] {
			m := ps[i].MAD()
			if m.Method() != mad.MethodGet || m.Attribute() != mad.AttrSMInfo {
				continue
			}
			m.Respond(mad.StatusOK)
			v := mad.SMInfo(m.Data())
			v.SetGUID(l.GUID)
			v.SetActCount(77)
			v.SetPriority(11)
			v.SetSMState(mad.SMMaster)
			_ = p.Send(&ps[i])
		}
	}
}

// Long answers come whole through ibsim, whose own library cuts them: from a
// port of ours to another, with loss on the way too.
func TestRMPPThroughIbsim(t *testing.T) {
	s := ibsimtest.Start(t, "testdata/ft32.net")
	if out, err := s.Tool("h9", "opensm", "-o", "-f", "osm.log"); err != nil {
		t.Fatalf("opensm: %v\n%s", err, out)
	}
	server := open(t, Options{SockName: s.Name, Node: "h9", SM: true})
	l, err := server.Local()
	if err != nil {
		t.Fatal(err)
	}
	table := porttest.Table(300, 112)
	go porttest.ServeTable(server, 112, table)
	for _, percent := range []int{0, 10} {
		s.Console(`Error "h9" %d`, percent)
		porttest.Query(t, open(t, Options{SockName: s.Name, Node: "h3"}), l.LID, 112, table)
	}
}
