package mem

import "github.com/urxe/urxe/ib"

// Kind is what an Op does.
type Kind uint8

// The kinds.
const (
	Nop         Kind = iota // takes part in ordering only
	Gather                  // memory → Frag
	Scatter                 // Frag → memory
	CompareSwap             // 8 bytes at VA, atomically: Orig = old; if old == Compare, store Swap
	FetchAdd                // 8 bytes at VA, atomically: Orig = old; store old + Swap
	Store                   // 8 bytes at VA, atomically: Orig = old; store Swap
)

func (k Kind) atomic() bool { return k >= CompareSwap && k <= Store }

// Op is one access to one contiguous range of one MR, for one packet.
type Op struct {
	Kind Kind
	// Tail marks the Scatter that ends a message: its last byte lands after all
	// others of the message, because programs poll it. Where the range ends at
	// a multiple of 8 or 4, those last 8 or 4 bytes land as one.
	Tail          bool
	MR            *MR       // nil only for Nop and for no bytes at all
	VA            uint64    // IOVA
	Frag          [2][]byte // the packet's side; lengths add up to the range
	Swap, Compare uint64    // in this machine's byte order, as is Orig
	Orig          uint64    // result of an atomic: the value before
	Status        Status    // result

	Owner Owner // told when the op has run; nil: nobody
	Note  Note
}

// Note is the owner's: it comes back with the op untouched.
type Note struct {
	PSN   ib.PSN
	Code  uint8
	Flags uint8
	N     uint32
	X     uint32
	Ref   any
}

// Status is how an op ended.
type Status uint8

// The statuses.
const (
	OK        Status = iota
	Fault            // the memory isn't there (unmapped, process gone, MR dead), or VA or Frag leave the MR
	Discarded        // not run: an earlier op of the same owner in the batch failed
)

// Owner is told of its ops: once each, in the order they were added. Its type
// is comparable, as pointers are. Ops without an owner are independent of
// each other.
type Owner interface{ Commit(op *Op) }

// size is the number of bytes of memory that the op is about.
func (op *Op) size() int {
	switch op.Kind {
	case Gather, Scatter:
		return len(op.Frag[0]) + len(op.Frag[1])
	case CompareSwap, FetchAdd, Store:
		return 8
	}
	return 0
}

// remote returns whose memory the op is about, nil if this process's or none.
func (op *Op) remote() *Process {
	if op.MR == nil || op.Kind == Nop {
		return nil
	}
	return op.MR.proc
}
