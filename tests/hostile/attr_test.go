package hostile

import (
	"strings"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
)

// refuses has a modification fail, with an error that says all of want, and
// leave the QP as it was.
func (c *conn) refuses(what string, a qp.Attr, mask qp.AttrMask, want ...string) {
	c.rig.t.Helper()
	before := c.Query()
	err := c.Modify(&a, mask)
	if err == nil {
		c.rig.t.Errorf("%s: no error", what)
		return
	}
	if n := strings.Count(err.Error(), c.Number().String()); n != 1 {
		c.rig.t.Errorf("%s: error %q names the QP %d times", what, err, n)
	}
	for _, w := range append(want, "victim") {
		if !strings.Contains(err.Error(), w) {
			c.rig.t.Errorf("%s: error %q doesn't say %q", what, err, w)
		}
	}
	if after := c.Query(); after != before {
		c.rig.t.Errorf("%s: failed, and changed %+v to %+v", what, before, after)
	}
}

// Each attribute that is out of range is named, with what may be.
func TestAttributesOutOfRange(t *testing.T) {
	r := newRig(t, ib.MTU256)
	toInit, toRTR, toRTS := r.victim.attrs()
	for _, c := range []struct {
		in     qp.State
		a      qp.Attr
		mask   qp.AttrMask
		change func(*qp.Attr)
		want   []string
	}{
		{qp.Reset, toInit, initMask, func(a *qp.Attr) { a.PKeyIndex = 4 }, []string{"PKEY_INDEX", "0 to 3"}},
		{qp.Reset, toInit, initMask, func(a *qp.Attr) { a.Port = 0 }, []string{"PORT", "1"}},
		{qp.Reset, toInit, initMask, func(a *qp.Attr) { a.Port = 2 }, []string{"PORT", "1"}},
		{qp.Reset, toInit, initMask, func(a *qp.Attr) { a.Access = mem.ZeroBased }, []string{"ACCESS_FLAGS", "REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC"}},
		{qp.Init, toRTR, rtrMask, func(a *qp.Attr) { a.PathMTU = 0 }, []string{"PATH_MTU", "256, 512, 1024, 2048 or 4096"}},
		{qp.Init, toRTR, rtrMask, func(a *qp.Attr) { a.PathMTU = 6 }, []string{"PATH_MTU", "256, 512, 1024, 2048 or 4096"}},
		{qp.Init, toRTR, rtrMask, func(a *qp.Attr) { a.DestQPN = 1 << 24 }, []string{"DEST_QPN", "24-bit"}},
		{qp.Init, toRTR, rtrMask, func(a *qp.Attr) { a.RQPSN = 1 << 24 }, []string{"RQ_PSN", "24-bit"}},
		{qp.Init, toRTR, rtrMask, func(a *qp.Attr) { a.MaxDestRdAtomic = 129 }, []string{"MAX_DEST_RD_ATOMIC", "0 to 128"}},
		{qp.Init, toRTR, rtrMask, func(a *qp.Attr) { a.MinRNRTimer = 32 }, []string{"MIN_RNR_TIMER", "0 to 31"}},
		{qp.Init, toRTR, rtrMask, func(a *qp.Attr) { a.AV = qp.AV{} }, []string{"DGID"}},
		{qp.Init, toRTR, rtrMask, func(a *qp.Attr) { a.AV.SGIDIndex = 2 }, []string{"SGID index 2", "0: ::ffff:10.0.0.2", "1: fd00::2"}},
		{qp.Init, toRTR, rtrMask, func(a *qp.Attr) { a.AV.SGIDIndex = 1 }, []string{"IP version", "fd00::2"}},
		{qp.Init, toRTR, rtrMask, func(a *qp.Attr) { a.AV.FlowLabel = 1 << 20 }, []string{"flow label", "20 bits"}},
		{qp.Init, toRTR, rtrMask, func(a *qp.Attr) { a.AV.SL = 16 }, []string{"service level 16", "0 to 15"}},
		{qp.Init, toRTR, rtrMask, func(a *qp.Attr) { a.AV.Port = 2 }, []string{"port 2", "port 1 only"}},
		{qp.Init, toRTR, rtrMask, func(a *qp.Attr) { a.AV.DGID = ib.GID{0: 0xff, 15: 1} }, []string{"multicast"}},
		{qp.RTR, toRTS, rtsMask, func(a *qp.Attr) { a.Timeout = 32 }, []string{"TIMEOUT", "0 to 31"}},
		{qp.RTR, toRTS, rtsMask, func(a *qp.Attr) { a.RetryCnt = 8 }, []string{"RETRY_CNT", "0 to 7"}},
		{qp.RTR, toRTS, rtsMask, func(a *qp.Attr) { a.RNRRetry = 8 }, []string{"RNR_RETRY", "0 to 7"}},
		{qp.RTR, toRTS, rtsMask, func(a *qp.Attr) { a.SQPSN = 1 << 24 }, []string{"SQ_PSN", "24-bit"}},
		{qp.RTR, toRTS, rtsMask, func(a *qp.Attr) { a.MaxRdAtomic = 129 }, []string{"MAX_QP_RD_ATOMIC", "0 to 128"}},
		{qp.SQD, qp.Attr{}, qp.AttrAltPath, func(*qp.Attr) {}, []string{"ALT_PATH", "not supported"}},
		{qp.RTS, qp.Attr{CurState: qp.RTR}, qp.AttrCurState, func(*qp.Attr) {}, []string{"RTS", "RTR", "CUR_STATE"}},
	} {
		r.victim.enter(c.in)
		c.change(&c.a)
		r.victim.refuses(strings.Join(c.want, ", "), c.a, c.mask, c.want...)
		r.victim.enter(qp.RTS) // it is as good as new
	}
}

// Each required attribute that is missing, and each that may not be set, is
// named, with those that are required and allowed.
func TestAttributesMissingAndOutOfPlace(t *testing.T) {
	r := newRig(t, ib.MTU256)
	toInit, toRTR, toRTS := r.victim.attrs()
	for _, step := range []struct {
		from     qp.State
		a        qp.Attr
		required qp.AttrMask
		optional qp.AttrMask
	}{
		{qp.Reset, toInit, initMask, 0},
		{qp.Init, toRTR, rtrMask, qp.AttrAltPath | qp.AttrAccess | qp.AttrPKeyIndex},
		{qp.RTR, toRTS, rtsMask, qp.AttrAltPath | qp.AttrAccess | qp.AttrMinRNRTimer | qp.AttrCurState | qp.AttrPathMigState},
	} {
		step.a.CurState, step.a.AV = step.from, toRTR.AV
		for bit := range 26 {
			one := qp.AttrMask(1) << bit
			switch {
			case one == qp.AttrState, step.optional&one != 0:
				continue
			case step.required&one != 0:
				r.victim.enter(step.from)
				r.victim.refuses("without "+one.String(), step.a, step.required&^one, "missing attributes "+one.String(), "required: ")
			default:
				r.victim.enter(step.from)
				r.victim.refuses("with "+one.String(), step.a, step.required|one, one.String(), "not allowed", "required: ", "optional: ")
			}
		}
	}
}

// A move that isn't legal names the legal ones.
func TestIllegalMoves(t *testing.T) {
	r := newRig(t, ib.MTU256)
	legal := map[qp.State]string{
		qp.Reset: "INIT", qp.Init: "RTR", qp.RTR: "RTS", qp.RTS: "SQD", qp.SQD: "RTS", qp.Err: "RESET",
	}
	for _, from := range states {
		for to := qp.Reset; to <= qp.Err+2; to++ {
			switch {
			case to == qp.Reset, to == qp.Err, strings.Contains(legal[from], to.String()), to == from:
				continue
			}
			r.victim.enter(from)
			r.victim.refuses(from.String()+" to "+to.String(), qp.Attr{State: to}, qp.AttrState, from.String(), to.String(), "legal: ", legal[from])
		}
	}
}
