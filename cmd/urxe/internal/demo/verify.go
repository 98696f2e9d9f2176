package demo

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/urxe/urxe/cmd/urxe/internal/rig"
	"github.com/urxe/urxe/verbs"
)

// verifySize is the bytes of each side's buffer: the longest message, and room around it.
const verifySize = 1<<20 + 4096

// verifySizes are the lengths of the messages: the edges of packets, odd ones, and a long one.
var verifySizes = []int{0, 1, 2, 3, 4, 7, 64, 255, 256, 257, 1023, 1024, 1025, 4095, 4096, 4097, 65535, 65536, 65537, 1 << 20}

// verifier runs one operation at all sizes, and checks all memory of both sides after each: what should have changed has,
// and nothing else.
type verifier struct {
	ctx  context.Context
	a, b *rig.Side
	to   rig.Address // of b
	op   verbs.Opcode

	messages int
	bytes    int64
	mine     []byte // what a's memory has to be
	theirs   []byte // what b's has to be
}

func (v *verifier) run() error {
	v.mine, v.theirs = make([]byte, verifySize), make([]byte, verifySize)
	noise := make([]byte, 2*verifySize)
	rand.NewChaCha8([32]byte{byte(v.op)}).Read(noise)
	for i, n := range v.sizes() {
		copy(v.a.Buf, noise[i:]) // other bytes at each place for each message
		copy(v.b.Buf, noise[verifySize-i:])
		copy(v.mine, v.a.Buf)
		copy(v.theirs, v.b.Buf)
		v.order()
		at := 8 * (i + 1)
		if !v.atomic() {
			at += i // odd addresses, too
		}
		if err := v.message(n, at); err != nil {
			return fmt.Errorf("message of %d bytes: %w", n, err)
		}
		v.messages++
		v.bytes += int64(n)
	}
	return nil
}

func (v *verifier) atomic() bool { return v.op == verbs.OpCompareSwap || v.op == verbs.OpFetchAdd }

func (v *verifier) sizes() []int {
	if v.atomic() {
		return []int{8, 8, 8, 8, 8, 8, 8, 8}
	}
	return verifySizes
}

// message runs the operation with n bytes at the peer's offset at, and checks its completions and all memory.
func (v *verifier) message(n, at int) error {
	wr := verbs.SendWR{ID: 7, Opcode: v.op, Flags: verbs.Signaled, SGEs: []verbs.SGE{v.a.MR.SGE(16, n/2), v.a.MR.SGE(16+n/2, n-n/2)},
		Imm: uint32(n) ^ 0x5eed0000, RemoteAddr: v.to.Addr + uint64(at), RKey: v.to.RKey}
	v.expect(&wr, n, at)
	received := v.op == verbs.OpSend || v.op == verbs.OpSendImm || v.op == verbs.OpWriteImm
	if received {
		if _, err := v.b.QPs[0].PostRecv(verbs.RecvWR{ID: 8, SGEs: []verbs.SGE{v.b.MR.SGE(at, n)}}); err != nil {
			return err
		}
	}
	if _, err := v.a.QPs[0].PostSend(wr); err != nil {
		return err
	}
	if _, err := v.complete(v.a, 7); err != nil {
		return err
	}
	if received {
		wc, err := v.complete(v.b, 8)
		if err != nil {
			return err
		}
		if err := v.checkReceived(wc, &wr, n); err != nil {
			return err
		}
	}
	return v.compare()
}

// expect works out what memory has to be afterwards.
func (v *verifier) expect(wr *verbs.SendWR, n, at int) {
	mine, theirs := v.mine[16:16+n], v.theirs[at:at+n]
	switch v.op {
	case verbs.OpRead:
		copy(mine, theirs)
	case verbs.OpFetchAdd, verbs.OpCompareSwap:
		old := binary.NativeEndian.Uint64(theirs)
		wr.CompareAdd, wr.Swap = old, ^old // it is swapped, or doubled
		if v.messages%2 == 1 {
			wr.CompareAdd++ // it is not swapped
		}
		now := old + wr.CompareAdd
		if v.op == verbs.OpCompareSwap {
			if now = old; wr.CompareAdd == old {
				now = wr.Swap
			}
		}
		binary.NativeEndian.PutUint64(mine, old)
		binary.NativeEndian.PutUint64(theirs, now)
	default:
		copy(theirs, mine)
	}
}

// complete waits for the completion of a work request.
func (v *verifier) complete(s *rig.Side, id uint64) (verbs.WC, error) {
	var wcs [1]verbs.WC
	if _, err := s.Wait(v.ctx, wcs[:]); err != nil {
		return wcs[0], err
	}
	if err := wcs[0].Err(); err != nil {
		return wcs[0], err
	}
	if wcs[0].ID != id {
		return wcs[0], fmt.Errorf("completion of work request %d, want %d", wcs[0].ID, id)
	}
	return wcs[0], nil
}

func (v *verifier) checkReceived(wc verbs.WC, wr *verbs.SendWR, n int) error {
	if int(wc.ByteLen) != n {
		return fmt.Errorf("the receive tells %d bytes", wc.ByteLen)
	}
	if withImm := v.op != verbs.OpSend; withImm != (wc.Flags&verbs.WCWithImm != 0) || withImm && wc.Imm != wr.Imm {
		return fmt.Errorf("immediate data 0x%08x (flags %x), want 0x%08x", wc.Imm, wc.Flags, wr.Imm)
	}
	return nil
}

// order puts what this goroutine does with the peer's memory before or after what the transport does with it. On one
// machine nothing else need do that: a WRITE has no completion there.
func (v *verifier) order() { v.b.MR.Load8(0) }

// compare compares all memory of both sides.
func (v *verifier) compare() error {
	v.order()
	if !bytes.Equal(v.a.Buf, v.mine) {
		return fmt.Errorf("the requester's memory is wrong from byte %d on", firstDifference(v.a.Buf, v.mine))
	}
	if !bytes.Equal(v.b.Buf, v.theirs) {
		return fmt.Errorf("the responder's memory is wrong from byte %d on", firstDifference(v.b.Buf, v.theirs))
	}
	return nil
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}
