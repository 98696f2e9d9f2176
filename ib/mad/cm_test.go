package mad

import (
	"testing"

	"github.com/urxe/urxe/tests/conform"
)

// place is where a field of a CM message is: the byte behind the MAD header, the bit in it from the top, and its bits.
type place struct {
	field           string
	byte, bit, bits int
}

// The tables of IBA 12.6, 12.8 and 12.11.
func TestCMMessages(t *testing.T) {
	pathOf := func(at int) []place {
		return []place{{"LocalLID", at, 0, 16}, {"RemoteLID", at + 2, 0, 16}, {"LocalGID", at + 4, 0, 128}, {"RemoteGID", at + 20, 0, 128},
			{"FlowLabel", at + 36, 0, 20}, {"PacketRate", at + 39, 2, 6}, {"TrafficClass", at + 40, 0, 8}, {"HopLimit", at + 41, 0, 8},
			{"SL", at + 42, 0, 4}, {"SubnetLocal", at + 42, 4, 1}, {"LocalACKTimeout", at + 43, 0, 5}}
	}
	private := func(at int) place { return place{"PrivateData", at, 0, (232 - at) * 8} }
	commIDs := []place{{"LocalCommID", 0, 0, 32}, {"RemoteCommID", 4, 0, 32}}
	with := func(p ...place) []place { return append(append([]place(nil), commIDs...), p...) }
	for _, m := range []struct {
		attribute AttributeID
		view      string
		fields    []place
	}{
		{0x10, "REQ", []place{{"LocalCommID", 0, 0, 32}, {"VendorID", 5, 0, 24}, {"ServiceID", 8, 0, 64}, {"LocalCAGUID", 16, 0, 64},
			{"LocalQKey", 28, 0, 32}, {"LocalQPN", 32, 0, 24}, {"ResponderResources", 35, 0, 8}, {"LocalEECN", 36, 0, 24}, {"InitiatorDepth", 39, 0, 8},
			{"RemoteEECN", 40, 0, 24}, {"RemoteCMResponseTimeout", 43, 0, 5}, {"TransportServiceType", 43, 5, 2}, {"EndToEndFlowControl", 43, 7, 1},
			{"StartingPSN", 44, 0, 24}, {"LocalCMResponseTimeout", 47, 0, 5}, {"RetryCount", 47, 5, 3}, {"PKey", 48, 0, 16}, {"PathMTU", 50, 0, 4},
			{"RDCExists", 50, 4, 1}, {"RNRRetryCount", 50, 5, 3}, {"MaxCMRetries", 51, 0, 4}, {"SRQ", 51, 4, 1}, {"ExtendedTransport", 51, 5, 3},
			{"Primary", 52, 0, 352}, {"Alternate", 96, 0, 352}, private(140)}},
		{0x11, "MRA", with(place{"MessageMRAed", 8, 0, 2}, place{"ServiceTimeout", 9, 0, 5}, private(10))},
		{0x12, "REJ", with(place{"MessageRejected", 8, 0, 2}, place{"InfoLength", 9, 0, 7}, place{"Reason", 10, 0, 16}, place{"Info", 12, 0, 576}, private(84))},
		{0x13, "REP", with(place{"LocalQKey", 8, 0, 32}, place{"LocalQPN", 12, 0, 24}, place{"VendorIDHigh", 15, 0, 8}, place{"LocalEECN", 16, 0, 24},
			place{"VendorIDMiddle", 19, 0, 8}, place{"StartingPSN", 20, 0, 24}, place{"VendorIDLow", 23, 0, 8}, place{"ResponderResources", 24, 0, 8},
			place{"InitiatorDepth", 25, 0, 8}, place{"TargetACKDelay", 26, 0, 5}, place{"FailoverAccepted", 26, 5, 2}, place{"EndToEndFlowControl", 26, 7, 1},
			place{"RNRRetryCount", 27, 0, 3}, place{"SRQ", 27, 3, 1}, place{"LocalCAGUID", 28, 0, 64}, private(36))},
		{0x14, "RTU", with(private(8))},
		{0x15, "DREQ", with(place{"RemoteQPN", 8, 0, 24}, private(12))},
		{0x16, "DREP", with(private(8))},
		{0x17, "SIDRREQ", []place{{"RequestID", 0, 0, 32}, {"PKey", 4, 0, 16}, {"ServiceID", 8, 0, 64}, private(16)}},
		{0x18, "SIDRREP", []place{{"RequestID", 0, 0, 32}, {"Status", 4, 0, 8}, {"InfoLength", 5, 0, 8}, {"QPN", 8, 0, 24}, {"ServiceID", 12, 0, 64},
			{"QKey", 20, 0, 32}, {"Info", 24, 0, 576}, private(96)}},
		{0x19, "LAP", with(place{"RemoteQPN", 12, 0, 24}, place{"RemoteCMResponseTimeout", 15, 0, 5}, place{"LocalLID", 20, 0, 16}, place{"RemoteLID", 22, 0, 16},
			place{"LocalGID", 24, 0, 128}, place{"RemoteGID", 40, 0, 128}, place{"FlowLabel", 56, 0, 20}, place{"TrafficClass", 59, 0, 8}, place{"HopLimit", 60, 0, 8},
			place{"PacketRate", 61, 2, 6}, place{"SL", 62, 0, 4}, place{"SubnetLocal", 62, 4, 1}, place{"LocalACKTimeout", 63, 0, 5}, private(64))},
		{0x1a, "APR", with(place{"InfoLength", 8, 0, 8}, place{"Status", 9, 0, 8}, place{"Info", 12, 0, 576}, private(84))},
		{0, "CMPath", pathOf(0)},
	} {
		t.Run(m.view, func(t *testing.T) { checkPlaces(t, layoutByName(t, m.view), m.fields) })
	}
	conform.Row(t, "5.10/req", "5.10/mra", "5.10/rej", "5.10/rep", "5.10/rtu", "5.10/dreq", "5.10/drep", "5.10/sidr-req", "5.10/sidr-rep",
		"5.10/lap", "5.10/apr")
}

// checkPlaces wants exactly these fields there.
func checkPlaces(t *testing.T, l *Layout, want []place) {
	t.Helper()
	i := 0
	for _, f := range l.Fields {
		if f.Name == "" {
			continue
		}
		if got := (place{f.Name, f.Bit / 8, f.Bit % 8, f.Bits}); i >= len(want) || got != want[i] {
			t.Fatalf("%s: field %d is %+v, want those of %+v", l.Name, i, got, want)
		}
		i++
	}
	if i != len(want) {
		t.Errorf("%s: no %+v", l.Name, want[i:])
	}
}

// A CM MAD is of the class and version, and its data is all behind the header.
func TestCMHeader(t *testing.T) {
	m := make(MAD, Size)
	m.Init(ClassCM, MethodSend, AttrREQ, 0)
	if m[0] != 1 || m[1] != 7 || m[2] != 2 || m[3] != 3 || m[17] != 0x10 || len(m.Data()) != REQSize || REQSize != Size-HeaderSize {
		t.Errorf("% x, %d bytes of data", m[:HeaderSize], len(m.Data()))
	}
	if _, err := Parse(m); err != nil || m.Class().QPN() != 1 {
		t.Errorf("%v, to QP %v", err, m.Class().QPN())
	}
}
