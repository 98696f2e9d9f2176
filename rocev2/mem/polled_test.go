package mem

import (
	"encoding/binary"
	"testing"
)

func aligned(n int) []byte {
	b := make([]byte, n+8)
	return b[(8-Address(b)%8)%8:][:n]
}

func TestPolledAccess(t *testing.T) {
	b := aligned(24)
	binary.NativeEndian.PutUint64(b[8:], 0x0102030405060708)
	if v := Load64(b, 8); v != 0x0102030405060708 {
		t.Errorf("Load64: %#x", v)
	}
	for i := range b {
		b[i] = byte(i)
	}
	for i := range b {
		if v := Load8(b, i); v != byte(i) {
			t.Errorf("Load8(%d): %d", i, v)
		}
	}
	Store32(b, 4, 0xdeadbeef)
	if v := Load32(b, 4); v != 0xdeadbeef || b[3] != 3 || b[8] != 8 {
		t.Errorf("Store32 and Load32: %#x, neighbours %d %d", v, b[3], b[8])
	}
	Store64(b, 16, 40)
	if v := Add64(b, 16, 2); v != 42 || Load64(b, 16) != 42 {
		t.Errorf("Add64: %d", v)
	}
	if CompareAndSwap64(b, 16, 41, 7) || !CompareAndSwap64(b, 16, 42, 7) || Load64(b, 16) != 7 {
		t.Error("CompareAndSwap64 swaps when, and only when, the word is the old one")
	}
}

func TestPolledAccessPanics(t *testing.T) {
	b := aligned(16)
	for name, f := range map[string]func(){
		"past the end": func() { Load64(b, 9) },
		"negative":     func() { Load32(b, -4) },
		"misaligned":   func() { Store64(b, 4, 0) },
		"byte":         func() { Load8(b, 16) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
	Store64(b, 0, 1) // the lock of race builds isn't left held
}

func TestPolledAccessAllocatesNothing(t *testing.T) {
	b := aligned(16)
	if n := testing.AllocsPerRun(100, func() { Store64(b, 0, Load64(b, 8)+uint64(Load8(b, 3))) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
