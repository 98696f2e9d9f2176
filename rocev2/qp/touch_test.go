package qp

import (
	"reflect"
	"strings"
	"testing"
)

// Touch must be kept in step with what packets need of a QP, and with its layout:
// to read one line too few costs more than all the others save.
func TestTouchReadsEachLine(t *testing.T) {
	touched := "mtu cfg.QPN cfg.Window req.una req.rnrUntil req.flight req.nakAt resp.epsn resp.msg.got resp.msg.va attr.DestQPN attr.Timeout"
	needed := "svc state path pace cfg.PD cfg.Keys cfg.SQ cfg.Counters cfg.Host cfg.SendCQ req.nxt req.high req.tail req.ring req.failStatus req.dry " +
		"req.ackDeadline req.timing req.flight req.rdAtomics req.credits req.gaps.n resp.ackOwed resp.nak resp.reading resp.owed resp.msg.op " +
		"resp.msg.size attr.Access attr.MaxRdAtomic attr.RetryCnt"
	q := newQP(t, nil).QP
	line := func(field string) uintptr {
		v := reflect.ValueOf(q).Elem()
		for name := range strings.SplitSeq(field, ".") {
			v = v.FieldByName(name)
		}
		return v.UnsafeAddr() / 64
	}
	lines := map[uintptr]bool{}
	for f := range strings.FieldsSeq(touched) {
		lines[line(f)] = true
	}
	for f := range strings.FieldsSeq(needed) {
		if !lines[line(f)] {
			t.Errorf("the cache line of %s isn't touched", f)
		}
	}
}
