package wire

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// hashBytes is the standard library's CRC at every length, alignment and start,
// wherever it cuts the bytes among its ways.
func TestHashBytes(t *testing.T) {
	buf := make([]byte, 4500)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(buf)
	for n := range 4400 {
		for _, at := range []int{0, 1, n % 64} {
			b, start := buf[at:at+n], uint32(n)*0x9e3779b9
			if got, want := ^hashBytes(^start, b), crc32.Update(start, crc32.IEEETable, b); got != want {
				t.Fatalf("%d bytes at %d from %#x: %#x, and it is %#x", n, at, start, got, want)
			}
		}
	}
}

// BenchmarkHash is the CRC of payloads, beside the standard library's.
func BenchmarkHash(b *testing.B) {
	for _, size := range []int{128, 256, 1024, 2048, 4096} {
		buf := make([]byte, size)
		for name, hash := range map[string]func(){
			"own":      func() { hashBytes(1, buf) },
			"standard": func() { crc32.Update(1, crc32.IEEETable, buf) },
		} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.SetBytes(int64(size))
				for b.Loop() {
					hash()
				}
			})
		}
	}
}
