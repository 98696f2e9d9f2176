package qp

import (
	"bytes"

	"github.com/urxe/urxe/rocev2/mem"
)

// window is a memory window of an end. It opens and shuts by work requests, of
// its own end or of the peer, and is used only in between: as a program does that
// is told by its peer what has completed.
type window struct {
	mw    *mem.MW
	key   uint32
	state windowState
	by    *duoEnd // whose work request, with the index at, opens or shuts it
	at    int
	// The peer's work requests that use it have indices below used, READs below read.
	used, read int
}

type windowState uint8

const (
	shut windowState = iota
	opening
	open
	shutting
)

// flush is a FLUSH: when it has completed, what was to be written before is there.
type flush struct {
	at     int // its index
	before int // work requests with places
}

// placeless reports whether a work request of that opcode moves no bytes.
func placeless(o WROpcode) bool { return o == WRFlush || o == WRBindMW || o == WRLocalInv }

// openMemory gives the end a key for all that may be done with its memory, and a
// window, which may be open already.
func (e *duoEnd) openMemory(bound bool) {
	mr, err := e.keys.Register(&e.pd, mem.NewBytes(e.mem, memBase), memBase, memBase, memSize,
		mem.LocalWrite|mem.RemoteWrite|mem.RemoteRead|mem.RemoteAtomic|mem.FlushGlobal|mem.MWBind)
	if err != nil {
		e.t.Fatal(err)
	}
	e.mr, e.window.mw = mr, e.testQP.window(mem.MWType2)
	if !bound {
		return
	}
	b := e.wholeOf(0)
	if err := e.keys.Bind(&b, &e.pd, e.QP); err != nil {
		e.t.Fatal(err)
	}
	e.window.state, e.window.key = open, e.window.mw.Key()
}

// wholeOf is a bind of the window to all memory, by a key that ends with that byte.
func (e *duoEnd) wholeOf(key uint8) mem.Bind {
	return mem.Bind{MW: e.window.mw, Key: key, LKey: e.mr.Key, Addr: memBase, Length: memSize,
		Access: mem.RemoteWrite | mem.RemoteRead | mem.RemoteAtomic | mem.FlushGlobal}
}

// completed reports whether the work request with that index is complete.
func (e *duoEnd) completed(index int) bool { return e.sq.retired > index }

// possible returns the operation, or another in the place of one that the windows
// don't allow now. An end may shut its own when the peer is done with it; a READ
// that the network brings once more is refused then, as the answer may be wanted.
func (e *duoEnd) possible(o WROpcode) WROpcode {
	v := &e.window
	mayShut := v.state == open && e.peer.completed(v.used-1) && (v.read == 0 || len(e.air) == 0)
	switch {
	case o == WRBindMW && v.state != shut, o == WRLocalInv && !mayShut:
		return WRFlush
	case o == WRSendInv && e.peer.window.state != open:
		return WRSend
	}
	return o
}

// useKey has a work request name the peer's memory by its window, if it is open,
// or by its region.
func (e *duoEnd) useKey(w *SendWQE, byWindow bool) {
	v := &e.peer.window
	if w.RKey = e.peer.mr.Key; !byWindow || v.state != open {
		return
	}
	w.RKey, v.used = v.key, len(e.sq.sends)+1
	if w.Opcode == WRRead {
		v.read = v.used
	}
}

func (e *duoEnd) postBind(w *SendWQE) {
	v := &e.window
	v.state, v.by, v.at, v.used, v.read = opening, e, len(e.sq.sends), 0, 0
	w.Local = &Local{Bind: e.wholeOf(uint8(w.ID))}
}

// postInvalidate has a SEND shut the peer's window. The answers of READs by it
// must be there before: only a fence sees to that (IBA 10.8.3.3).
func (e *duoEnd) postInvalidate(w *SendWQE) {
	v := &e.peer.window
	w.InvKey = v.key
	if !e.completed(v.read - 1) {
		w.Flags |= Fence
	}
	v.shutBy(e, len(e.sq.sends))
}

func (v *window) shutBy(e *duoEnd, index int) { v.state, v.by, v.at = shutting, e, index }

// watchWindow takes note that the window has opened or shut.
func (e *duoEnd) watchWindow() {
	v := &e.window
	if v.state != opening && v.state != shutting || !v.by.completed(v.at) {
		return
	}
	if v.state == opening {
		v.state, v.key = open, v.mw.Key()
	} else {
		v.state = shut
	}
	reached := e.keys.FindRemote(v.key, &e.pd, e.QP, memBase, memSize, mem.RemoteWrite) != nil
	if reached != (v.state == open) {
		e.t.Fatalf("window in state %d: memory is reached by its key: %v", v.state, reached)
	}
}

// checkFlushes looks at the peer's memory for what the FLUSHes that have completed
// were about.
func (e *duoEnd) checkFlushes() {
	for len(e.flushes) > 0 && e.completed(e.flushes[0].at) {
		f := e.flushes[0]
		e.flushes = e.flushes[1:]
		from, to := windowAt, windowAt+f.before*duoSlot
		if !bytes.Equal(e.peer.mem[from:to], e.peer.model[from:to]) {
			e.t.Fatalf("work request %d, a FLUSH, has completed, and what was to be written before isn't there", f.at+1)
		}
	}
}
