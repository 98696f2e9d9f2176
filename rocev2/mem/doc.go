// Package mem is the memory side of the transport: protection domains, memory
// regions, windows and their keys, and the batches by which packets' bytes get
// in and out of memory.
//
// A packet handler finds a region by its key (Table.Find for an lkey,
// Table.FindRemote for a peer's rkey), appends ops to its worker's Batch, and
// learns what became of them when the batch has run (Owner.Commit). There are two
// kinds of memory: bytes of this process, where an op is a copy, and another
// process's, where the ops of a burst share system calls.
package mem
