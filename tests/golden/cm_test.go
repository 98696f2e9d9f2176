package golden

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/capture/capturetest"
	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/rocev2/cm"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
	"github.com/urxe/urxe/tests/interop/guest"
)

// dissected says, of the messages that Wireshark knows, which of its fields each of ours is. It tells no others, and the
// flow labels and rates of paths wrong: of b6 f2 00 00, tshark 4.0.17 makes the flow label 0x00b6f and the rate 0x36.
var dissected = map[mad.AttributeID]struct {
	view   mad.View
	fields string
}{
	mad.AttrREQ: {mad.REQ(nil), `req:LocalCommID req.localcaguid:LocalCAGUID req.localqkey:LocalQKey req.localqpn:LocalQPN
		req.responderres:ResponderResources req.localeecn:LocalEECN req.initdepth:InitiatorDepth req.remoteeecn:RemoteEECN
		req.remoteresptout:RemoteCMResponseTimeout req.transpsvctype:TransportServiceType req.e2eflowctrl:EndToEndFlowControl
		req.startpsn:StartingPSN req.localresptout:LocalCMResponseTimeout req.retrcount:RetryCount req.pkey:PKey req.pppmtu:PathMTU
		req.rdcexist:RDCExists req.rnrretrcount:RNRRetryCount req.maxcmretr:MaxCMRetries req.srq:SRQ req.ext_transport:ExtendedTransport
		req.prim_locallid:Primary.LocalLID req.prim_remotelid:Primary.RemoteLID
		req.prim_tfcclass:Primary.TrafficClass
		req.prim_hoplim:Primary.HopLimit req.prim_sl:Primary.SL req.prim_subnetlocal:Primary.SubnetLocal
		req.prim_localacktout:Primary.LocalACKTimeout req.alt_locallid:Alternate.LocalLID req.alt_remotelid:Alternate.RemoteLID
		req.alt_localgid:Alternate.LocalGID req.alt_remotegid:Alternate.RemoteGID req.alt_tfcclass:Alternate.TrafficClass req.alt_hoplim:Alternate.HopLimit
		req.alt_sl:Alternate.SL req.alt_subnetlocal:Alternate.SubnetLocal req.alt_localacktout:Alternate.LocalACKTimeout`},
	mad.AttrREP: {mad.REP(nil), `rep:LocalCommID rep.remotecommid:RemoteCommID rep.localqkey:LocalQKey rep.localqpn:LocalQPN
		rep.localeecn:LocalEECN rep.startpsn:StartingPSN rep.respres:ResponderResources rep.initdepth:InitiatorDepth
		rep.tgtackdelay:TargetACKDelay rep.failoveracc:FailoverAccepted rep.e2eflowctrl:EndToEndFlowControl
		rep.rnrretrcount:RNRRetryCount rep.srq:SRQ rep.localcaguid:LocalCAGUID rep.private:PrivateData`},
	mad.AttrRTU: {mad.RTU(nil), `rtu.localcommid:LocalCommID rtu.remotecommid:RemoteCommID rtu.private:PrivateData`},
	mad.AttrREJ: {mad.REJ(nil), `rej.localcommid:LocalCommID rej.remotecommid:RemoteCommID rej.msgrej:MessageRejected
		rej.rejinfolen:InfoLength rej.reason:Reason rej.ari:Info rej.private:PrivateData`},
	mad.AttrDREQ: {mad.DREQ(nil), `dreq.localcommid:LocalCommID dreq.remotecommid:RemoteCommID req.remoteqpneecn:RemoteQPN
		dreq.private:PrivateData`},
	mad.AttrDREP: {mad.DREP(nil), `drsp.localcommid:LocalCommID drsp.remotecommid:RemoteCommID drsp.private:PrivateData`},
}

// names are the fields of a message for tshark, and ours.
func names(fields string) (theirs, ours []string) {
	for _, f := range strings.Fields(fields) {
		a, b, _ := strings.Cut(f, ":")
		theirs, ours = append(theirs, "infiniband.cm."+a), append(ours, b)
	}
	return theirs, ours
}

// value reads a field of a view, by its name, as a number or as hex digits.
func value(l *mad.Layout, body []byte, name string) string {
	outer, inner, nested := strings.Cut(name, ".")
	for i := range l.Fields {
		f := &l.Fields[i]
		switch b := body[f.Bit/8:]; {
		case f.Name != outer:
		case nested:
			return value(f.Inner, b, inner)
		case f.Bits > 64:
			return fmt.Sprintf("%x", b[:f.Bits/8])
		default:
			return strconv.FormatUint(f.Get(body, 0), 10)
		}
	}
	panic("no field " + name)
}

// cmOf returns the CM message of a packet, nil when it has none.
func cmOf(raw []byte) mad.MAD {
	var p wire.Packet
	if wire.Parse(&p, &wire.Frame{Frag: [2][]byte{bytes.Clone(raw)}}) != wire.Accepted || p.DestQP != ib.QPNGeneralServices {
		return nil
	}
	m, err := mad.Parse(p.Payload[0])
	if err != nil || m.Class() != mad.ClassCM {
		return nil
	}
	return m
}

// agree wants tshark to read the same from the CM messages of a capture as we do. It returns how many there are of each
// kind, and what tshark reads of more fields, of each packet.
func agree(t *testing.T, file string, packets [][]byte, more ...string) (map[mad.AttributeID]int, [][]string) {
	t.Helper()
	all := more
	begin := map[mad.AttributeID]int{} // where a message's fields are among all
	for kind, d := range dissected {
		theirs, _ := names(d.fields)
		begin[kind] = len(all)
		all = append(all, theirs...)
	}
	rows := guest.Fields(t, file, all...)
	if len(rows) != len(packets) {
		t.Fatalf("%s: tshark reads %d of %d packets", file, len(rows), len(packets))
	}
	seen := map[mad.AttributeID]int{}
	for i, raw := range packets {
		if m := cmOf(raw); m != nil {
			seen[m.Attribute()]++
			compare(t, fmt.Sprintf("%s packet %d", file, i+1), m, rows[i][begin[m.Attribute()]:])
		}
		rows[i] = rows[i][:len(more)]
	}
	return seen, rows
}

// compare compares the fields of a message with what tshark reads.
func compare(t *testing.T, where string, m mad.MAD, row []string) {
	t.Helper()
	d := dissected[m.Attribute()]
	_, ours := names(d.fields)
	for k, name := range ours {
		if want, got := number(row[k]), value(d.view.Layout(), m.Data(), name); want != got {
			t.Errorf("%s: %s.%s is %s, tshark reads %s (%s)", where, d.view.Layout().Name, name, got, want, row[k])
		}
	}
}

// number reads what tshark prints of a number; bytes stay as they are.
func number(s string) string {
	if s == "True" || s == "False" {
		return map[string]string{"True": "1", "False": "0"}[s]
	}
	if n, err := strconv.ParseUint(s, 0, 64); err == nil && len(s) < 20 {
		return strconv.FormatUint(n, 10)
	}
	return strings.ReplaceAll(s, ":", "")
}

func needTshark(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		nettest.SkipOrFail(t, "tshark")
	}
}

// What the CM of Linux sent, tshark and we read alike.
func TestCMOfLinux(t *testing.T) {
	needTshark(t)
	conform.Row(t, "5.10/mad", "5.10/req", "5.10/rep", "5.10/rtu", "5.10/dreq", "5.10/drep", "5.10/ip-service", "5.10/ip-private", "5.10/ip-defaults")
	total := map[mad.AttributeID]int{}
	for _, file := range []string{"rping_v4.pcap", "ucmatose_v4.pcap", "rdma_client_v4.pcap", "k612_nvme_connect_612_v4.pcap"} {
		packets := read(t, file)
		seen, rows := agree(t, file, packets, "infiniband.cm.req.serviceid.dport", "infiniband.cm.req.ip_cm.sport", "infiniband.cm.req.ip_cm.sip4",
			"infiniband.cm.req.ip_cm.dip4")
		for kind, n := range seen {
			total[kind] += n
		}
		for i, raw := range packets {
			if m := cmOf(raw); m != nil {
				checkLinux(t, raw, m, rows[i])
			}
		}
	}
	for kind, n := range map[mad.AttributeID]int{mad.AttrREQ: 5, mad.AttrREP: 5, mad.AttrRTU: 5, mad.AttrDREQ: 5, mad.AttrDREP: 5} {
		if total[kind] < n {
			t.Errorf("only %d of attribute 0x%x", total[kind], uint16(kind))
		}
	}
}

// checkLinux checks what every CM message of Linux has, and of a REQ the service and the header of the IP CM service.
func checkLinux(t *testing.T, raw []byte, m mad.MAD, row []string) {
	t.Helper()
	var p wire.Packet
	wire.Parse(&p, &wire.Frame{Frag: [2][]byte{bytes.Clone(raw)}})
	if p.Opcode != wire.UDSendOnly || p.QKey != ib.QKeyGSI || p.SrcQP != 1 || p.Len != mad.Size ||
		m.BaseVersion() != 1 || m.ClassVersion() != 2 || m.Method() != mad.MethodSend {
		t.Errorf("%v from %v with Q_Key %v, %d bytes: %v", p.Opcode, p.SrcQP, p.QKey, p.Len, m)
	}
	if m.Attribute() != mad.AttrREQ {
		return
	}
	v := mad.REQ(m.Data())
	space, port, ok := cm.ServiceID(v.ServiceID()).IP()
	h, err := cm.ParseIPHeader(v.PrivateData())
	got := []string{fmt.Sprintf("0x%04x", port), fmt.Sprintf("0x%04x", h.SourcePort), h.Source.String(), h.Destination.String()}
	if err != nil || !ok || space != cm.TCP || strings.Join(got, " ") != strings.Join(row, " ") {
		t.Errorf("service %v, header %+v (%v); tshark reads %q", cm.ServiceID(v.ServiceID()), h, err, row)
	}
	if v.LocalCMResponseTimeout() != 20 || v.RemoteCMResponseTimeout() != 20 || v.MaxCMRetries() != 15 {
		t.Errorf("timeouts %d and %d, %d retries", v.LocalCMResponseTimeout(), v.RemoteCMResponseTimeout(), v.MaxCMRetries())
	}
	want := make([]byte, cm.IPHeaderLen)
	if h.Put(want); !bytes.Equal(want, v.PrivateData()[:cm.IPHeaderLen]) {
		t.Errorf("the header written is % x, was % x", want, v.PrivateData()[:cm.IPHeaderLen])
	}
}

// The QPs of Linux, at both ends, send from the UDP port of the flow label that the REQ names.
func TestFlowLabelOfLinux(t *testing.T) {
	conform.Row(t, "5.6/sport-symmetric", "5.10/req")
	for _, file := range []string{"rping_v4.pcap", "ucmatose_v4.pcap", "rdma_client_v4.pcap", "k612_nvme_connect_612_v4.pcap", "k612_nvme_connect_61_v4.pcap"} {
		ports := map[uint16]bool{} // of the REQs so far
		froms := map[string]int{}
		for i, raw := range read(t, file) {
			if m := cmOf(raw); m != nil && m.Attribute() == mad.AttrREQ {
				ports[wire.SourcePort(mad.REQ(m.Data()).Primary().FlowLabel(), 0, 0)] = true
			}
			var p wire.Packet
			if wire.Parse(&p, &wire.Frame{Frag: [2][]byte{bytes.Clone(raw)}}) != wire.Accepted || p.DestQP == ib.QPNGeneralServices {
				continue
			}
			froms[string(p.IPHeader()[12:16])]++
			if !ports[p.SrcPort] {
				t.Errorf("%s packet %d: port %d, the flow labels of the REQs give %v", file, i+1, p.SrcPort, ports)
			}
		}
		if len(froms) != 2 {
			t.Errorf("%s: %d ends sent data", file, len(froms))
		}
	}
}

// What we write at random, tshark reads as it was meant.
func TestCMByTshark(t *testing.T) {
	needTshark(t)
	conform.Row(t, "5.10/rej", "5.10/req", "5.10/rep")
	r := rand.New(rand.NewPCG(1, 2))
	var packets [][]byte
	for kind, d := range dissected {
		for range 20 {
			m := make(mad.MAD, mad.Size)
			m.Init(mad.ClassCM, mad.MethodSend, kind, 0)
			for i := 0; i < d.view.Layout().Size; i += 8 {
				binary.NativeEndian.PutUint64(m.Data()[i:], r.Uint64())
			}
			packets = append(packets, datagram(m))
		}
	}
	file := filepath.Join(t.TempDir(), "cm.pcapng")
	if err := os.WriteFile(file, capturetest.Of(t, packets...).Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	seen, _ := agree(t, file, packets)
	for kind, n := range seen {
		if n != 20 {
			t.Errorf("%d of attribute 0x%x", n, uint16(kind))
		}
	}
}

// datagram makes a packet of a message to QP1.
func datagram(m mad.MAD) []byte {
	flow := wire.Flow{Src: ib.GIDFromAddr(netip.MustParseAddr("10.77.0.1")), Dst: ib.GIDFromAddr(netip.MustParseAddr("10.77.0.2")), SrcPort: 0xd000}
	p := wire.Packet{Header: wire.Header{Opcode: wire.UDSendOnly, PKey: ib.PKeyDefault, DestQP: 1, SrcQP: 1, QKey: ib.QKeyGSI}, Len: mad.Size}
	p.Payload[0] = m
	var t wire.Template
	t.Set(&flow)
	return emit(&flow, &p, t.FrameLen(wire.UDSendOnly, mad.Size))
}
