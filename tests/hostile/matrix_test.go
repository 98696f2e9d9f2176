package hostile

import (
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

var states = []qp.State{qp.Reset, qp.Init, qp.RTR, qp.RTS, qp.SQD, qp.Err}

// lengths of frames: all up to 80, and those around the longest headers.
func lengths() (l []int) {
	for n := range 81 {
		l = append(l, n)
	}
	for n := 98; n <= 108; n++ {
		l = append(l, n)
	}
	return l
}

// lengthsOf are those around a full path MTU behind each kind of header.
func lengthsOf(mtu ib.MTU) (l []int) {
	for _, ext := range []int{0, 4, 8, 12, 16, 20, 28} {
		for d := -5; d <= 5; d++ {
			l = append(l, least+ext+mtu.Bytes()+d)
		}
	}
	return l
}

// around are the lengths around the end of a frame's first piece.
func around(cut int) (l []int) {
	for d := -5; d <= 8; d++ {
		l = append(l, cut+d)
	}
	return l
}

// TestMatrix sends a frame of every length with every opcode and every pad
// count to a QP in every state.
func TestMatrix(t *testing.T) {
	conform.Row(t, "5.1/op-0c", "5.1/op-11", "5.1/op-12", "5.1/op-13", "5.1/op-14", "5.1/op-15", "5.1/op-18",
		"5.1/op-19", "5.1/op-1a", "5.1/op-1b", "5.1/op-1e", "5.1/op-1f", "5.1/op-other", "5.11/25", "5.11/32", "bug/4")
	for _, s := range states {
		for sc := range numScenes {
			if sc != idle && s != qp.RTS {
				continue
			}
			t.Run(s.String()+"/"+sc.String(), func(t *testing.T) {
				r := newRig(t, ib.MTU256)
				r.tryAll(s, sc, append(lengths(), lengthsOf(ib.MTU256)...))
			})
		}
	}
	t.Run("path MTU 4096", func(t *testing.T) {
		r := newRig(t, ib.MTU4096)
		r.tryAll(qp.RTS, idle, append(around(r.link.cut), lengthsOf(ib.MTU4096)...))
	})
	t.Run("first pieces of 128 bytes", func(t *testing.T) {
		r := newRig(t, ib.MTU256)
		r.link.cut = 128
		r.tryAll(qp.RTS, idle, append(around(r.link.cut), lengthsOf(ib.MTU256)...))
	})
}

// tryAll sends a frame of each length with each opcode and pad count.
func (r *rig) tryAll(s qp.State, sc scene, lengths []int) {
	r.t.Helper()
	fresh := false
	for i, n := range lengths {
		for op := range 256 {
			if testing.Short() && (op+i)%5 != 0 { // each opcode at some length of each kind
				continue
			}
			for pad := range 4 {
				fresh = r.try(&cell{r, n, byte(op), pad, s, sc}, fresh)
			}
		}
	}
	d := r.port.Drops()
	receives := s == qp.RTR || s == qp.RTS || s == qp.SQD || s == qp.SQE
	if refused := d[wire.DropRejected]+d[wire.DropTooLong] > uint64(frames(100)); refused != receives || (d[wire.Accepted] > uint64(frames(50))/10) != receives {
		r.t.Errorf("%d frames accepted, %d refused", d[wire.Accepted], d[wire.DropRejected])
	}
	r.t.Logf("%d frames, %d accepted, %d refused", r.port.Counters().RcvdPkts, d[wire.Accepted], d[wire.DropRejected])
}

// try sends the frame of a cell to the victim, which is as fresh as after play
// when nothing has happened to it since, and reports whether it still is.
func (r *rig) try(x *cell, fresh bool) bool {
	if !fresh {
		r.play(x.state, x.scene)
	}
	want, change := x.expect()
	key := r.victim.fast.Key()
	got := r.deliver(x.frame(), change)
	r.want(x, got, want)
	if took := x.op == 0x17 && got.Verdict == wire.Accepted; r.victim.valid(key) == took {
		r.t.Fatalf("%v: the key %#x has been invalidated: %v, want %v", x, key, !took, took)
	}
	return got.Verdict != wire.Accepted && got.State == x.state && len(got.Sent) == 0 && len(got.Events) == 0 && !x.moves(got.Verdict)
}

// moves reports whether the victim expects another PSN after a packet that it
// dropped: UC does, after whatever came to it.
func (x *cell) moves(v wire.Verdict) bool {
	return x.r.victim.typ == qp.UC && (v == wire.DropRejected || v == wire.DropTooLong || v == wire.DropIncomplete)
}

// TestMatrixUnreliable is TestMatrix for UC and UD.
func TestMatrixUnreliable(t *testing.T) {
	for _, typ := range []qp.Type{qp.UC, qp.UD} {
		for _, s := range append(states, qp.SQE) {
			t.Run(typ.String()+"/"+s.String(), func(t *testing.T) {
				r := newRigOf(t, typ, ib.MTU256)
				r.tryAll(s, idle, append(lengths(), lengthsOf(ib.MTU256)...))
			})
		}
	}
}

// TestMatrixMulticast is TestMatrix for datagrams to a group: its member takes
// what it would take if it were sent to it alone. Where no one is a member, no one
// takes anything.
func TestMatrixMulticast(t *testing.T) {
	conform.Row(t, "5.6/multicast-qpn")
	for _, s := range append(states, qp.SQE) {
		t.Run(s.String(), func(t *testing.T) {
			r := newRigOf(t, qp.UD, ib.MTU256)
			r.join()
			r.tryAll(s, idle, append(lengths(), lengthsOf(ib.MTU256)...))
		})
	}
	t.Run("nobody", func(t *testing.T) {
		r := newRigOf(t, qp.UD, ib.MTU256)
		r.group = true
		r.play(qp.RTS, idle)
		for op := range 256 {
			x := cell{r, least + opcodes[op].ext, byte(op), 0, qp.RTS, idle}
			v := x.parse()
			if v == wire.Accepted {
				v = wire.DropNoMember
			}
			r.want(&x, r.deliver(x.frame(), nil), silent(v, qp.RTS))
		}
	})
}

// TestTruncated cuts a good frame of each opcode at every length; the lengths
// in its headers stay.
func TestTruncated(t *testing.T) {
	conform.Row(t, "bug/4")
	r := newRig(t, ib.MTU256)
	r.play(qp.RTS, idle)
	for op := range 256 {
		x := cell{r, least + opcodes[op].ext, byte(op), 0, qp.RTS, idle}
		if opcodes[op].payload == some || opcodes[op].payload == undefined {
			x.len += 12
		}
		whole := x.frame()
		for n := range whole {
			v := wire.DropTruncated
			if n < bthAt {
				v = wire.DropNotRoCE
			}
			r.want(&x, r.deliver(whole[:n], nil), silent(v, qp.RTS))
		}
	}
}

// TestLengthFields sets the lengths of IP and UDP to everything near the truth.
func TestLengthFields(t *testing.T) {
	conform.Row(t, "5.6/length", "bug/4")
	for v6 := range uint8(2) {
		r := newRig(t, ib.MTU256)
		r.v6 = v6
		r.play(qp.RTS, idle)
		good := r.victim.request(0x04, 0, nil, pattern(12)).bytes()
		ipLen, udp := ipAt+2, udpAt
		if v6 == 1 {
			ipLen, udp = ipAt+4, udpAt+v6More
		}
		for _, behind := range []int{0, 5} { // bytes behind the packet, such as Ethernet's padding
			for ip := -60; ip < 60; ip++ {
				for u := -60; u < 60; u++ {
					b := append(append([]byte(nil), good...), make([]byte, behind)...)
					be.PutUint16(b[ipLen:], be.Uint16(b[ipLen:])+uint16(ip))
					be.PutUint16(b[udp+4:], be.Uint16(b[udp+4:])+uint16(u))
					if ip == 0 && u == 0 {
						continue // a good packet
					}
					o := r.deliver(b, nil)
					r.want("lengths", o, silent(o.Verdict, qp.RTS))
					if o.Verdict == wire.Accepted {
						t.Fatalf("accepted with an IP length wrong by %d and a UDP length wrong by %d", ip, u)
					}
				}
			}
		}
	}
}

// TestAroundTheCut sends packets whose ICRC lies around the end of a frame's
// first piece, and damages each of their last bytes.
func TestAroundTheCut(t *testing.T) {
	r := newRig(t, ib.MTU4096)
	for total := 3830; total <= 3850; total++ {
		n := total - least - 16
		f := r.victim.request(0x0a, 0, reth(base+writeOff, r.victim.mr.Key, n), pattern(n))
		f.pad, f.body = 0, append(reth(base+writeOff, r.victim.mr.Key, n), pattern(n)...)
		b := f.bytes()
		if len(b) != total {
			t.Fatalf("%d bytes, want %d", len(b), total)
		}
		r.victim.enter(qp.RTS)
		if n%4 != 0 {
			r.want("odd length", r.deliver(b, nil), silent(wire.DropLength, qp.RTS))
			// With a pad it is a packet.
			f = r.victim.request(0x0a, 0, reth(base+writeOff, r.victim.mr.Key, n), pattern(n))
			b = f.bytes()
		}
		for k := len(b) - 12; k < len(b); k++ {
			bad := append([]byte(nil), b...)
			bad[k] ^= 0x40
			r.want("damaged", r.deliver(bad, nil), silent(wire.DropICRC, qp.RTS))
		}
		want := outcome{Verdict: wire.Accepted, State: qp.RTS, Sent: []reply{answer(wire.RCAck, firstRQ, 0x1f, 1)}}
		r.want("around the cut", r.deliver(b, func(m []byte) { copy(m[writeOff:], pattern(n)) }), want)
	}
}
