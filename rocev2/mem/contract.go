// Package mem is the memory side of the transport: protection domains, memory
// regions and their keys, and the interface by which packets' bytes get in and
// out of memory, in batches.
package mem

import "github.com/urxe/urxe/ib"

// THIS FILE IS THE CONTRACT while the package is being written; it goes away.

// Access is a set of rights, numbered as ibv_access_flags.
type Access uint32

const (
	LocalWrite   Access = 1 << 0
	RemoteWrite  Access = 1 << 1
	RemoteRead   Access = 1 << 2
	RemoteAtomic Access = 1 << 3
	MWBind       Access = 1 << 4
	ZeroBased    Access = 1 << 5
)

// PD is a protection domain; its identity is all that matters.
type PD struct{ _ byte }

// Space is memory that ops work on: the bytes of this process, or another process's.
// Only Batch calls its methods.
type Space interface {
	// (the implementer's choice; two kinds: Bytes (completes at once) and Process (process_vm_*, batched, merged))
}

// NewBytes makes a Space of this process's b, whose first byte has address base.
// NewProcess(pid/pidfd) makes a Space of another process's memory; addresses are that process's.

// MR is a memory region.
type MR struct {
	// LKey and RKey are equal: a 24-bit index, random, and a random key byte.
	Key    uint32
	PD     *PD
	IOVA   uint64
	Length uint64
	Access Access
	// unexported: space, address of the first byte within it, dead flag (atomic)
}

// Dead reports whether the MR was deregistered: nothing may touch its memory any more.
func (m *MR) Dead() bool { panic("contract") }

// Addr translates an IOVA inside the MR into an address of its Space.

// Table holds the MRs of a device by key. Lookups take no lock and may run on any goroutine.
type Table struct{}

// Register adds a region of length bytes at addr of sp, known to peers as iova.
func (t *Table) Register(pd *PD, sp Space, addr, iova, length uint64, acc Access) (*MR, error) {
	panic("contract")
}

// Deregister removes m and marks it dead. The caller then waits for the workers' Step boundary before it frees the memory.
func (t *Table) Deregister(m *MR) { panic("contract") }

// Find returns the region that key, pd, the range [va, va+n) and the rights need all allow; or nil. No wrap-around. Used
// for lkeys and rkeys alike; never allocates.
func (t *Table) Find(key uint32, pd *PD, va, n uint64, need Access) *MR { panic("contract") }

// Kind is what an Op does.
type Kind uint8

const (
	Nop         Kind = iota // takes part in ordering only
	Gather                  // memory → Frag
	Scatter                 // Frag → memory
	CompareSwap             // 8 bytes at VA, atomically: Orig = old; if old == Compare, store Swap
	FetchAdd                // 8 bytes at VA, atomically: Orig = old; store old + Swap
)

// Op is one access to one contiguous range of one MR, for one packet.
type Op struct {
	Kind          Kind
	Tail          bool      // Scatter that ends a message: its last byte lands after all others
	MR            *MR       // nil for Nop
	VA            uint64    // IOVA
	Frag          [2][]byte // the packet's side; lengths add up to the range
	Swap, Compare uint64
	Orig          uint64 // result of an atomic: the value before
	Status        Status // result

	Owner Owner // told when the op has run; ops of one owner run and are told in order
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

const (
	OK        Status = iota
	Fault            // the memory isn't there (unmapped, process gone, MR dead)
	Discarded        // not run: an earlier op of the same owner in the batch failed
)

// Owner is told of its ops.
type Owner interface{ Commit(op *Op) }

// Batch collects ops and runs them. It belongs to one worker.
type Batch struct{}

// NewBatch makes a batch with room for n ops.
func NewBatch(n int) *Batch { panic("contract") }

// Add returns a zeroed op at the end of the batch, to be filled in, or nil when it is full: Run, then Add again.
func (b *Batch) Add() *Op { panic("contract") }

// Free returns the ops that still fit.
func (b *Batch) Free() int { panic("contract") }

// Immediate reports whether all ops added so far (and not yet run) are of spaces that complete at once, so that running
// them one packet at a time costs nothing.
func (b *Batch) Immediate() bool { panic("contract") }

// Run runs all ops, in order per owner, and then or meanwhile calls each one's Owner.Commit, in order. An owner's ops after its first failed
// one aren't run; they are committed as Discarded. The batch is empty afterwards. Commit must not add to the batch.
func (b *Batch) Run() { panic("contract") }
