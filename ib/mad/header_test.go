package mad

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/urxe/urxe/ib"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A directed Get(PortInfo) of two hops, byte by byte.
func TestDirectedSMPBytes(t *testing.T) {
	m := MAD(bytes.Repeat([]byte{0xa5}, Size))
	if err := m.InitSMP(MethodGet, AttrPortInfo, 3, []byte{1, 9}); err != nil {
		t.Fatal(err)
	}
	m.SetTID(0x0102030405060708)
	m.SetMKey(0x1112131415161718)
	want := make([]byte, Size)
	copy(want, unhex(t, `01 81 01 01  0000 00 02  0102030405060708  0015 0000  00000003  1112131415161718  ffff ffff`))
	copy(want[128:], unhex(t, `00 01 09`))
	if !bytes.Equal(m, want) {
		t.Errorf("got\n%s", hex.Dump(m))
	}
	m.SetStatus(StatusInvalidField)
	m.Respond(StatusInvalidField)
	if m.Method() != MethodGetResp || !m.Returning() || m.Status() != StatusInvalidField || m[4] != 0x80 || m[5] != 0x1c {
		t.Errorf("the answer is %v: % x", m, m[:8])
	}
	if err := m.InitSMP(MethodGet, AttrPortInfo, 0, make([]byte, 64)); err == nil {
		t.Error("a path of 64 hops was taken")
	}
}

// A Get(NodeInfo) that stock ibsim answered.
func TestGoldenNodeInfo(t *testing.T) {
	v := NodeInfo(unhex(t, `0101021000000000002000000000000000200000000000000020000000080000000000a104000000`))
	if v.NodeType() != NodeSwitch || v.NumPorts() != 16 || v.NodeGUID() != 0x200000 || v.PortGUID() != 0x200000 ||
		v.PartitionCap() != 8 || v.Revision() != 0xa1 || v.LocalPortNum() != 4 || v.VendorID() != 0 {
		t.Errorf("got %+v", v)
	}
}

func TestRespond(t *testing.T) {
	for _, c := range []struct {
		class  Class
		m, ret Method
	}{
		{ClassPerf, MethodGet, MethodGetResp}, {ClassSubnLID, MethodSet, MethodGetResp},
		{ClassSubnLID, MethodTrap, MethodTrapRepress}, {ClassSubnAdm, MethodGetTable, MethodGetTableResp},
		{ClassSubnAdm, MethodDelete, MethodDeleteResp}, {ClassSubnAdm, MethodReport, MethodReportResp},
	} {
		m := make(MAD, Size)
		m.Init(c.class, c.m, AttrNotice, 0)
		if m.IsResponse() {
			t.Errorf("%v is a response", m)
		}
		m.Respond(StatusBusy)
		if m.Method() != c.ret || m.Status() != StatusBusy || !m.IsResponse() {
			t.Errorf("the answer to 0x%02x is %v", c.m, m)
		}
	}
}

func TestDataWindows(t *testing.T) {
	m := make(MAD, Size)
	for _, c := range []struct {
		class Class
		at, n int
	}{{ClassSubnDirect, 64, 64}, {ClassSubnLID, 64, 64}, {ClassPerf, 64, 192}, {ClassSubnAdm, 56, 200}} {
		m.Init(c.class, MethodGet, AttrPortInfo, 0)
		d := m.Data()
		if len(d) != c.n || cap(d) != c.n || &d[0] != &m[c.at] {
			t.Errorf("class 0x%02x: data of %d bytes, want %d at %d", c.class, len(d), c.n, c.at)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	ok := make(MAD, Size)
	if err := ok.InitSMP(MethodGet, AttrNodeInfo, 0, []byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(ok); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		bad  func(m MAD) []byte
	}{
		{"short", func(m MAD) []byte { return m[:255] }},
		{"empty", func(MAD) []byte { return nil }},
		{"base version", func(m MAD) []byte { m[0] = 2; return m }},
		{"hop count", func(m MAD) []byte { m[offHopCount] = 64; return m }},
		{"hop pointer", func(m MAD) []byte { m[offHopPointer] = 3; return m }},
	} {
		if _, err := Parse(c.bad(append(MAD(nil), ok...))); err == nil {
			t.Errorf("%s: taken", c.name)
		}
	}
}

func TestStride(t *testing.T) {
	m := make(MAD, Size)
	for n, want := range map[int]int{PathRecordSize: 64, NodeRecordSize: 112, LinkRecordSize: 8, SMInfoRecordSize: 32} {
		if m.SetRecordStride(n); m.RecordStride() != want {
			t.Errorf("records of %d bytes have stride %d, want %d", n, m.RecordStride(), want)
		}
	}
}

func TestNoticeTraps(t *testing.T) {
	n := make(Notice, NoticeSize)
	n.SetIsGeneric(true)
	for number, want := range map[TrapNumber]string{
		64: "DetailsGID", 67: "DetailsGID", 128: "DetailsLink", 129: "DetailsPort", 131: "DetailsPort",
		144: "DetailsCapability", 145: "DetailsSystemImageGUID", 256: "DetailsMKey", 257: "DetailsKey", 258: "DetailsKey", 259: "DetailsSwitchPKey",
	} {
		n.SetTrapNumber(number)
		if v := n.Trap(); v == nil || v.Layout().Name != want {
			t.Errorf("trap %d: %T, want %s", number, v, want)
		}
	}
	n.SetTrapNumber(999)
	if v := n.Trap(); v != nil {
		t.Errorf("trap 999: %T", v)
	}
	// The bytes of a trap 144 as IBA has them: LID 7, mask 0x0050c04a, "node description changed".
	n.SetTrapNumber(TrapCapabilityMask)
	d := n.Trap().(DetailsCapability)
	d.SetLID(7)
	d.SetOtherLocalChanges(true)
	d.SetCapabilityMask(0x0050c04a)
	d.SetNodeDescriptionChange(true)
	if want := unhex(t, "0000 0007 00 01 0050c04a 0001"); !bytes.Equal(n[10:22], want) {
		t.Errorf("got % x, want % x", n[10:22], want)
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{NodeSwitch.String(), "Switch"}, {NodeType(9).String(), "invalid node type (9)"},
		{PhysLinkUp.String(), "LinkUp"}, {PhysicalState(15).String(), "invalid state (15)"},
		{SMMaster.String(), "MASTER"}, {SMState(7).String(), "invalid state (7)"},
		{StatusSANoRecords.String(), "no records"}, {Status(0x7700).String(), "status 0x7700"},
		{RMPPTooManyRetries.String(), "too many retries"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	if ClassSubnDirect.QPN() != ib.QPNSubnetManagement || ClassSubnAdm.QPN() != ib.QPNGeneralServices {
		t.Error("QPNs of classes")
	}
}

// Parse and everything that a MAD's reader calls take any bytes.
func FuzzParse(f *testing.F) {
	m := make(MAD, Size)
	_ = m.InitSMP(MethodGet, AttrPortInfo, 1, []byte{1, 2, 3})
	f.Add([]byte(m))
	m.InitSA(MethodGetTable, AttrPathRecord, 1)
	f.Add([]byte(m))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		_ = m.String()
		_ = m.Path()
		_ = m.ReturnPath()
		_ = m.IsRMPP()
		if d := m.Data(); len(d) >= NoticeSize {
			_ = Notice(d).Trap()
		}
		for _, v := range Views {
			l := v.Layout()
			if d := m.Data(); len(d) >= l.Size {
				l.Matches(^uint64(0), d, d)
			}
		}
		m.Respond(StatusBusy)
		if !m.IsResponse() {
			t.Error("the answer is no response")
		}
	})
}
