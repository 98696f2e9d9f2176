package bpf

// Count is an index of the map "counts": what became of a packet that could
// have been ours. The order is that of enum roce_count in roce.bpf.c.
type Count uint32

const (
	CountRedirected Count = iota // handed to the socket of its queue
	CountNoSocket                // ours, but its queue has no socket: passed to the kernel
	CountForeign                 // RoCEv2 for an address that isn't ours: passed to the kernel
	CountOptions                 // UDP for an address of ours in a fragment or with IP options: passed to the kernel
	NumCounts
)
