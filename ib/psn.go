package ib

import "fmt"

// PSN is a 24-bit packet sequence number. Numbers are compared in serial
// arithmetic: of two PSNs, the one that lies less than 2^23 ahead of the other
// is the later one (IBA 9.7.2).
type PSN uint32

const (
	psnBits = 24
	psnMask = 1<<psnBits - 1

	// PSNWindow is the greatest number of PSNs that may be unacknowledged at
	// once: half of the number space, so that "behind" and "ahead" differ.
	PSNWindow = 1 << (psnBits - 1)
)

// Add returns the PSN that lies n after p, modulo 2^24. n may be negative.
func (p PSN) Add(n int) PSN { return PSN(uint32(int64(p)+int64(n)) & psnMask) }

// Next returns the PSN after p.
func (p PSN) Next() PSN { return (p + 1) & psnMask }

// Sub returns the signed distance from q to p, in [-2^23, 2^23): p is ahead of
// q when it is positive.
func (p PSN) Sub(q PSN) int {
	return int(int32((uint32(p)-uint32(q))<<(32-psnBits)) >> (32 - psnBits))
}

// Before reports whether p lies behind q. Of two PSNs that are half the number
// space apart, each lies behind the other.
func (p PSN) Before(q PSN) bool { return p.Sub(q) < 0 }

// Valid reports whether p fits in 24 bits.
func (p PSN) Valid() bool { return p <= psnMask }

func (p PSN) String() string { return fmt.Sprintf("0x%06x", uint32(p)) }

// MSN is a 24-bit message sequence number: the count of request messages that
// a responder has completed, modulo 2^24 (IBA 9.7.7.1, C9-148).
type MSN uint32

// Next returns the MSN after m.
func (m MSN) Next() MSN { return (m + 1) & psnMask }
