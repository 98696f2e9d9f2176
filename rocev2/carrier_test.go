package rocev2

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/internal/steps"
	"github.com/urxe/urxe/xdp"
)

func openOver(e *nettest.End, o NetdevOptions) (p *Port, err error) {
	err = e.NS.Do(func() (err error) { p, err = OpenNetdev(e.Name, o); return err })
	return p, err
}

// Each step of AF_XDP fails on every rung: what is got is AF_PACKET, with a reason for
// each rung, unless AF_XDP was asked for. Then a step of AF_PACKET fails, too: nothing
// is got, and the error has all reasons. Nothing is left behind.
func TestLadderToTheEnd(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	e := p.Ends[0]
	defer func() { steps.Fail = nil }()
	stepsOf := func(kind LinkKind) (ops []string) {
		steps.Fail = func(op string) error { ops = append(ops, op); return nil }
		port, err := openOver(e, NetdevOptions{Link: kind})
		if err != nil {
			t.Fatal(err)
		}
		if err := port.Close(); err != nil {
			t.Fatal(err)
		}
		slices.Sort(ops)
		return slices.Compact(ops)
	}
	ofXDP, ofPacket := stepsOf(LinkAFXDP), stepsOf(LinkAFPacket)
	if len(ofXDP) < 15 || len(ofPacket) < 8 {
		t.Fatalf("steps %q, %q", ofXDP, ofPacket)
	}
	before := nettest.CountResources(t)
	boom, second := errors.New("no AF_XDP today"), errors.New("nor AF_PACKET")
	for _, op := range ofXDP {
		if slices.Contains(ofPacket, op) {
			continue // both would fail
		}
		fails := func(at string) error {
			if at == op {
				return boom
			}
			return nil
		}
		steps.Fail = fails
		port, err := openOver(e, NetdevOptions{})
		if err != nil {
			t.Fatalf("%s: %v", op, err)
		}
		s := port.Stats()
		if s.Link != "af_packet" || len(s.Reasons) == 0 || s.XDP != nil || s.AFPacket == nil {
			t.Errorf("%s: %+v", op, s)
		}
		for _, why := range s.Reasons {
			if !strings.Contains(why, boom.Error()) && !strings.Contains(why, "not supported") {
				t.Errorf("%s: reason %q", op, why)
			}
		}
		if err := port.Close(); err != nil {
			t.Error(err)
		}
		if _, err := openOver(e, NetdevOptions{Link: LinkAFXDP}); !errors.Is(err, boom) {
			t.Errorf("%s: AF_XDP or nothing: %v", op, err)
		}
		if r := nettest.CountResources(t); r != before {
			t.Fatalf("%s: %+v after, %+v before", op, r, before)
		}
	}
	for _, op := range ofPacket {
		steps.Fail = func(at string) error {
			switch at {
			case "load program":
				return boom
			case op:
				return second
			}
			return nil
		}
		if _, err := openOver(e, NetdevOptions{}); !errors.Is(err, boom) || !errors.Is(err, second) || !strings.Contains(err.Error(), "open veth0") {
			t.Errorf("%s: %v", op, err)
		}
		if r := nettest.CountResources(t); r != before {
			t.Fatalf("%s: %+v after, %+v before", op, r, before)
		}
	}
}

// Bad options are an error, and no reason to try another rung.
func TestLadderRefusesBadOptions(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	for _, o := range []NetdevOptions{
		{XDP: xdp.Options{RxFrames: 1}}, {XDP: xdp.Options{Mode: 77}}, {AllowPeers: prefixes("10.0.0.0/8")[:1:1], XDP: xdp.Options{BusyPoll: -1}},
	} {
		if port, err := openOver(p.Ends[0], o); err == nil {
			t.Errorf("%+v got %s", o, port.Stats().Rung)
			port.Close()
		}
	}
	if s := LinkAuto.String() + LinkAFXDP.String() + LinkAFPacket.String(); s != "autoaf_xdpaf_packet" {
		t.Error(s)
	}
}

// An address that the kernel can give no packets of, as the filter is full of others, is
// told of until it can.
func TestAddressThatDoesNotCome(t *testing.T) {
	pair := nettest.New(t, nettest.Config{})
	e := pair.Ends[0]
	p, err := openOver(e, NetdevOptions{Link: LinkAFPacket})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	q := newDatagrams(t, p, 0)
	groups := 0
	for err == nil && groups < MaxMcastQPAttach*8 {
		groups++
		err = q.AttachMcast(gid(fmt.Sprintf("ff0e::%x", groups)), 0)
	}
	if err == nil || p.Stats().Trouble != "" {
		t.Fatalf("%d groups: %v, trouble %q", groups, err, p.Stats().Trouble)
	}
	until := func(what string, ok func(trouble string) bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !ok(p.Stats().Trouble); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %q", what, p.Stats().Trouble)
			}
		}
	}
	if err := e.NS.Run("ip", "addr", "add", "fd99::1/64", "dev", e.Name, "nodad"); err != nil {
		t.Fatal(err)
	}
	until("no trouble with the address", func(s string) bool { return strings.Contains(s, "packets to some GIDs don't come: ") })
	for i := range 10 {
		if err := q.DetachMcast(gid(fmt.Sprintf("ff0e::%x", i+1)), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.NS.Run("ip", "addr", "add", "10.99.0.1/24", "dev", e.Name); err != nil {
		t.Fatal(err)
	}
	until("still trouble", func(s string) bool { return s == "" })
}
