package xdp

import (
	"encoding/binary"

	"github.com/urxe/urxe/internal/nettest"
)

// roceFrame is an Ethernet frame of n bytes with IPv4 and UDP to port 4791.
func roceFrame(src, dst *nettest.End, n int) []byte {
	f := make([]byte, n)
	copy(f, dst.MAC)
	copy(f[6:], src.MAC)
	be := binary.BigEndian
	be.PutUint16(f[12:], 0x0800)
	ip := f[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	be.PutUint16(ip[2:], uint16(n-14))
	copy(ip[12:], src.V4.AsSlice())
	copy(ip[16:], dst.V4.AsSlice())
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(be.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	be.PutUint16(ip[10:], ^uint16(sum))
	udp := ip[20:]
	be.PutUint16(udp, 0xc000)
	be.PutUint16(udp[2:], 4791)
	be.PutUint16(udp[4:], uint16(n-34))
	for i := range udp[8:] {
		udp[8+i] = byte(i*7 + n)
	}
	return f
}
