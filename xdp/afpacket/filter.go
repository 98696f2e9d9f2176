package afpacket

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

var be = binary.BigEndian

const (
	rocePort = 4791 // Annex A17.3.2.2: UDP destination port of RoCEv2

	// Of linux/filter.h: loads from there give what is beside the packet.
	besidePacket = 0xfffff000
	vlanPresent  = besidePacket + 48
	vlanTPID     = besidePacket + 60

	// Where fields are in a frame, by the version of IP.
	etherType                                   = 12
	v4Start, v4Fragment, v4Proto, v4Dst, v4Port = 14, 20, 23, 30, 36
	v6Proto, v6Dst, v6Port                      = 20, 38, 56

	loadByte          = unix.BPF_LD | unix.BPF_ABS | unix.BPF_B
	loadHalf          = unix.BPF_LD | unix.BPF_ABS | unix.BPF_H
	loadWord          = unix.BPF_LD | unix.BPF_ABS | unix.BPF_W
	isEqual           = unix.BPF_JMP | unix.BPF_JEQ
	anySet            = unix.BPF_JMP | unix.BPF_JSET
	jump              = unix.BPF_JMP | unix.BPF_JA
	verdict           = unix.BPF_RET // so many bytes of the frame
	takeAll, takeNone = 0xffffffff, 0
)

// filter is a classic BPF program.
type filter []unix.SockFilter

func (f *filter) op(code uint16, k uint32) { f.test(code, k, 0, 0) }

// test is a jump: so many instructions on if it holds, or if it doesn't.
func (f *filter) test(code uint16, k uint32, yes, no uint8) {
	*f = append(*f, unix.SockFilter{Code: code, Jt: yes, Jf: no, K: k})
}

// want drops the frame unless the field at an offset has a value.
func (f *filter) want(load uint16, at, value uint32) {
	f.op(load, at)
	f.test(isEqual, value, 1, 0)
	f.op(verdict, takeNone)
}

// filterFor takes RoCEv2 to these addresses, 16 bytes as in a GID, and nothing else.
func filterFor(addrs [][16]byte) (filter, error) {
	var f, v4, v6 filter
	v4.head4()
	v6.head6()
	for _, a := range addrs {
		if is4(a) {
			v4.take4(be.Uint32(a[12:]))
		} else {
			v6.take6(a)
		}
	}
	v4.op(verdict, takeNone)
	v6.op(verdict, takeNone)

	f.op(loadByte, vlanPresent)
	f.test(isEqual, 0, 3, 0)
	f.want(loadHalf, vlanTPID, unix.ETH_P_8021Q)
	f.op(loadHalf, etherType)
	f.test(isEqual, unix.ETH_P_IP, 2, 0)
	f.test(isEqual, unix.ETH_P_IPV6, 2, 0)
	f.op(verdict, takeNone)
	f.op(jump, 1)
	f.op(jump, uint32(len(v4)))
	f = slices.Concat(f, v4, v6)
	if len(f) > unix.BPF_MAXINSNS {
		return nil, fmt.Errorf("a filter for %d addresses has %d instructions, and may have %d: %w", len(addrs), len(f), unix.BPF_MAXINSNS, unix.E2BIG)
	}
	return f, nil
}

func is4(a [16]byte) bool { return bytes.Equal(a[:12], []byte{10: 0xff, 11: 0xff}) }

// head4 leaves the destination address to be compared.
func (f *filter) head4() {
	f.want(loadByte, v4Start, 0x45) // no options
	f.op(loadHalf, v4Fragment)
	f.test(anySet, 0x3fff, 0, 1) // More Fragments, or an offset
	f.op(verdict, takeNone)
	f.want(loadByte, v4Proto, unix.IPPROTO_UDP)
	f.want(loadHalf, v4Port, rocePort)
	f.op(loadWord, v4Dst)
}

func (f *filter) take4(addr uint32) {
	f.test(isEqual, addr, 0, 1)
	f.op(verdict, takeAll)
}

func (f *filter) head6() {
	f.want(loadByte, v6Proto, unix.IPPROTO_UDP)
	f.want(loadHalf, v6Port, rocePort)
}

func (f *filter) take6(addr [16]byte) {
	for i := range 4 {
		f.op(loadWord, v6Dst+4*uint32(i))
		f.test(isEqual, be.Uint32(addr[4*i:]), 0, uint8(7-2*i))
	}
	f.op(verdict, takeAll)
}

// attach makes it the filter of a socket.
func (f filter) attach(fd int) error {
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]})
}
