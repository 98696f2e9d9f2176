package xdp

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// diagMessage is a struct xdp_diag_msg with an attribute before its info.
func diagMessage(inode, ifindex, queue uint32) []byte {
	ne := binary.NativeEndian
	b := make([]byte, 16, 64)
	b[0] = unix.AF_XDP
	ne.PutUint32(b[4:], inode)
	b = ne.AppendUint16(ne.AppendUint16(b, 5), 2) // uid, cut short: padded to 4
	b = append(b, 0, 0, 0, 0)
	b = ne.AppendUint16(ne.AppendUint16(b, 12), 1)
	b = ne.AppendUint32(ne.AppendUint32(b, ifindex), queue)
	return netlinkMessage(20, b)
}

func netlinkMessage(kind uint16, b []byte) []byte {
	ne := binary.NativeEndian
	h := ne.AppendUint16(ne.AppendUint32(nil, uint32(16+len(b))), kind)
	return append(append(h, make([]byte, 10)...), b...)
}

func TestParseDiag(t *testing.T) {
	b := slices.Concat(diagMessage(11, 3, 0), diagMessage(12, 3, 1), diagMessage(13, 4, 1), diagMessage(14, 3, 1))
	if got, done := parseDiag(b, 3, 1); !slices.Equal(got, []uint32{12, 14}) || done {
		t.Errorf("%v, %v", got, done)
	}
	if got, done := parseDiag(append(b, netlinkMessage(unix.NLMSG_DONE, make([]byte, 4))...), 3, 0); !slices.Equal(got, []uint32{11}) || !done {
		t.Errorf("%v, %v", got, done)
	}
	if got, done := parseDiag(netlinkMessage(unix.NLMSG_ERROR, make([]byte, 20)), 3, 0); got != nil || !done {
		t.Errorf("%v, %v", got, done)
	}
}

func FuzzParseDiag(f *testing.F) {
	f.Add(diagMessage(11, 3, 0))
	f.Add(append(diagMessage(11, 3, 1), netlinkMessage(unix.NLMSG_DONE, nil)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if inodes, _ := parseDiag(b, 3, 0); len(inodes) > len(b)/32 {
			t.Errorf("%d sockets in %d bytes", len(inodes), len(b))
		}
	})
}

func TestMapsFillRing(t *testing.T) {
	const ring = "7f00-7f01 rw-s 100000000 00:08 1234  socket:[1234]\n"
	for maps, want := range map[string]bool{
		"": false, ring: true, "7f00-7f01 r--p 00000000 00:00 0 \n" + ring: true,
		"7f00-7f01 rw-s 00000000 00:08 1234  socket:[1234]\n":     false, // RX ring, or AF_PACKET's
		"7f00-7f01 rw-s 100000000 08:01 1234  /home/socket.db\n":  false,
		"100000000-100001000 rw-s 00000000 00:08 1  socket:[1]\n": false,
	} {
		if got := mapsFillRing([]byte(maps)); got != want {
			t.Errorf("%q: %v", maps, got)
		}
	}
}
