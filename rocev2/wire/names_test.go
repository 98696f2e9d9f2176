package wire

import (
	"strings"
	"testing"

	"github.com/urxe/urxe/tests/conform"
)

func TestOpcodeTable(t *testing.T) {
	names := map[string]bool{}
	for i := range 256 {
		o := Opcode(i)
		info, want := o.Info(), -1
		if n, ok := extLength[o]; ok {
			want = n
		}
		if o.Valid() != (want >= 0) || o.Valid() && info.ExtLen != want {
			t.Errorf("%02x: valid %v, %d bytes of extended headers, want %d", i, o.Valid(), info.ExtLen, want)
		}
		if o.Transport() != Transport(i&0xe0) {
			t.Errorf("%02x: transport %v", i, o.Transport())
		}
		if names[o.String()] {
			t.Errorf("%02x: a second %q", i, o.String())
		}
		names[o.String()] = true
	}
	for o, want := range map[Opcode]string{
		0x04: "RC SEND Only", 0x2b: "UC RDMA WRITE Only Immediate", 0x64: "UD SEND Only", 0x81: "CNP", 0x15: "opcode 0x15",
		0x12: "RC ATOMIC Acknowledge", 0x1c: "RC FLUSH",
	} {
		if o.String() != want {
			t.Errorf("%02x is %q, want %q", uint8(o), o.String(), want)
		}
	}
}

// TestPlaces has the opcodes that begin and end messages.
func TestPlaces(t *testing.T) {
	for o := range extLength {
		name := o.Info().Name
		starts := !strings.Contains(name, "Middle") && !strings.Contains(name, "Last")
		ends := !strings.Contains(name, "Middle") && !strings.Contains(name, "First")
		if p := o.Info().Place; p.Starts() != starts || p.Ends() != ends {
			t.Errorf("%v: starts %v, ends %v", o, p.Starts(), p.Ends())
		}
		answer := strings.Contains(name, "Acknowledge") || strings.Contains(name, "response") || o == CongestionNotify
		if o.Info().Request == answer {
			t.Errorf("%v: request %v", o, o.Info().Request)
		}
	}
}

func TestTransportNames(t *testing.T) {
	for tr, want := range map[Transport]string{RC: "RC", UC: "UC", UD: "UD", CNP: "CNP", 0xa0: "transport 0xa0"} {
		if tr.String() != want {
			t.Errorf("%q, want %q", tr.String(), want)
		}
	}
}

func TestVerdictNames(t *testing.T) {
	seen := map[string]bool{}
	for v := range NumVerdicts {
		name := v.String()
		if name == "" || seen[name] || strings.ContainsAny(name, " ()") {
			t.Errorf("verdict %d is %q", v, name)
		}
		seen[name] = true
	}
	if got := NumVerdicts.String(); !strings.HasPrefix(got, "verdict(") {
		t.Errorf("a verdict that isn't: %q", got)
	}
}

func TestSyndrome(t *testing.T) {
	conform.Row(t, "5.2/syndrome-ack", "5.2/syndrome-rnr", "5.2/syndrome-reserved", "5.2/syndrome-nak")
	for i := range 256 {
		s := Syndrome(i)
		ack, rnr, nak := i < 0x20, i >= 0x20 && i < 0x40, i >= 0x60 && i < 0x80
		if s.IsAck() != ack || s.IsRNR() != rnr || s.IsNak() != nak || s.Value() != uint8(i&31) {
			t.Errorf("%02x: ACK %v, RNR %v, NAK %v, value %d", i, s.IsAck(), s.IsRNR(), s.IsNak(), s.Value())
		}
		defined := ack || rnr || i >= 0x60 && i <= 0x64
		if strings.HasPrefix(s.String(), "reserved") == defined {
			t.Errorf("%02x: %q", i, s)
		}
	}
	for s, want := range map[Syndrome]string{
		0x1f: "ACK", 0x05: "ACK, credit code 5", 0x2c: "RNR NAK, timer code 12", 0x60: "NAK, PSN sequence error",
		0x61: "NAK, invalid request", 0x62: "NAK, remote access error", 0x63: "NAK, remote operational error",
		0x64: "NAK, invalid RD request", 0x65: "reserved syndrome 0x65", 0x9f: "reserved syndrome 0x9f",
	} {
		if s.String() != want {
			t.Errorf("%02x: %q, want %q", uint8(s), s, want)
		}
	}
}

func TestCut(t *testing.T) {
	b := []byte("0123456789")
	for first := range len(b) + 1 {
		f := halves(b, first)
		for off := range len(b) + 1 {
			for n := range len(b) - off + 1 {
				got := f.Cut(off, n)
				if joined(got) != string(b[off:off+n]) || got[1] != nil && (len(got[0]) == 0 || len(got[1]) == 0) {
					t.Errorf("cut at %d: bytes %d to %d are %q", first, off, off+n, got)
				}
			}
		}
	}
}
