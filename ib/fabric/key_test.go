package fabric

import (
	"errors"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// TestMKeyLease: who tries a wrong key starts the lease, who has the right one
// ends it, and when it is over the key can be read (IBA 14.2.4.2).
func TestMKeyLease(t *testing.T) {
	f := load(t, "ft32.net")
	now := clock.Time(time.Hour)
	f.SetClock(func() clock.Time { return now })
	a := attach(t, f, "h3", 1)
	bringUp(a)
	far := f.Node("h20")
	path := a.paths()[far]
	with := func(key uint64, method mad.Method, data []byte) (mad.PortInfo, error) {
		p := &mad.Packet{Addr: mad.Direct}
		if err := p.MAD().InitSMP(method, mad.AttrPortInfo, 1, path); err != nil {
			t.Fatal(err)
		}
		p.MAD().SetMKey(key)
		copy(p.MAD().Data(), data)
		m, err := a.call(p)
		if err != nil {
			return nil, err
		}
		return mad.PortInfo(m.Data()), nil
	}
	pi := append(mad.PortInfo(nil), far.Info(1)...)
	pi.SetMKey(77)
	pi.SetMKeyProtectBits(3)
	pi.SetMKeyLeasePeriod(15)
	pi.SetPortState(ib.PortNop)
	pi.SetPortPhysicalState(mad.PhysNop)
	if _, err := with(0, mad.MethodSet, pi); err != nil {
		t.Fatal(err)
	}
	closed := func(when string) {
		t.Helper()
		if _, err := with(5, mad.MethodGet, nil); !errors.Is(err, errLost) {
			t.Errorf("%s: Get with a wrong key: %v", when, err)
		}
	}
	now = now.Add(time.Hour)
	closed("before anybody tried")
	now = now.Add(14 * time.Second)
	closed("before the lease is over")
	if _, err := with(77, mad.MethodGet, nil); err != nil {
		t.Fatal(err)
	}
	now = now.Add(14 * time.Second)
	closed("after the owner came by")
	now = now.Add(16 * time.Second)
	info, err := with(5, mad.MethodGet, nil)
	if err != nil || info.MKey() != 77 || info.MKeyProtectBits() != 0 {
		t.Fatalf("after the lease: %v", err)
	}
	if _, err := with(5, mad.MethodSet, pi); !errors.Is(err, errLost) {
		t.Errorf("after the lease a Set still needs the key: %v", err)
	}
}

// TestRepressNeedsMKey: a TrapRepress without the key is a violation, and the
// trap comes again.
func TestRepressNeedsMKey(t *testing.T) {
	f := load(t, "ft32.net")
	a := attach(t, f, "h3", 1)
	bringUp(a)
	far := f.Node("h20")
	pi := append(mad.PortInfo(nil), far.Info(1)...)
	pi.SetMKey(77)
	pi.SetPortState(ib.PortNop)
	pi.SetPortPhysicalState(mad.PhysNop)
	a.set(mad.AttrPortInfo, 1, pi, a.paths()[far]...)
	if err := far.RaiseTrap(1, mad.TrapFlowControl); err != nil {
		t.Fatal(err)
	}
	answer := a.got[len(a.got)-1]
	answer.MAD().Respond(mad.StatusOK)
	a.got = nil
	if err := a.end.Inject(&answer); err != nil {
		t.Fatal(err)
	}
	if n := lastTrap(a); n == nil || n.TrapNumber() != mad.TrapBadMKey || mad.Method(n.Trap().(mad.DetailsMKey).Method()) != mad.MethodTrapRepress {
		t.Errorf("a TrapRepress without the key brings %v", n)
	}
	answer.MAD().SetMKey(77)
	if err := a.end.Inject(&answer); err != nil {
		t.Fatal(err)
	}
	a.got = nil
	f.ResendTraps()
	for _, p := range a.got {
		if mad.Notice(p.MAD().Data()).TrapNumber() == mad.TrapFlowControl {
			t.Error("the trap comes again after it was repressed with the key")
		}
	}
}

// TestLocalChangeTraps: what trap 144 says changed, and trap 145.
func TestLocalChangeTraps(t *testing.T) {
	f := New(Defaults{Width: 3, Speed: 7, SpeedExt: 7})
	if err := f.BuildTree(2, 1, 2, 1); err != nil {
		t.Fatal(err)
	}
	a := attach(t, f, "h0", 1)
	lids := bringUp(a)
	h := f.Node("h3")
	for _, c := range []struct {
		spec         LinkSpec
		width, speed bool
	}{{LinkSpec{Width: 1}, true, false}, {LinkSpec{Speed: 1}, false, true}, {LinkSpec{SpeedExt: 1}, false, true}, {LinkSpec{Width: 3, Speed: 3}, true, true}} {
		if err := h.Enable(1, c.spec); err != nil {
			t.Fatal(err)
		}
		d, ok := lastTrap(a).Trap().(mad.DetailsCapability)
		if !ok || d.LID() != lids[h] || !d.OtherLocalChanges() || d.LinkWidthEnabledChange() != c.width || d.LinkSpeedEnabledChange() != c.speed || d.NodeDescriptionChange() {
			t.Errorf("%+v: trap % x", c.spec, d)
		}
	}
	a.got = nil
	if err := h.Enable(1, LinkSpec{Width: 3}); err != nil || len(a.got) != 0 {
		t.Errorf("a change that is none: %v, %d traps", err, len(a.got))
	}
	if err := f.Node("leaf0").Enable(1, LinkSpec{Width: 1}); err == nil {
		t.Error("the port of a switch, which has no LID, sent a trap")
	}
	for _, n := range []*Node{h, f.Node("leaf1")} {
		n.SetSystemGUID(0xabc)
		d, ok := lastTrap(a).Trap().(mad.DetailsSystemImageGUID)
		if !ok || d.LID() != lids[n] || d.SystemImageGUID() != 0xabc {
			t.Errorf("%v: no trap 145 about its system image GUID", n)
		}
	}
}
