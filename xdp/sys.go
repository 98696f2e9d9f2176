package xdp

// The system calls of AF_XDP, which x/sys/unix has constants and structs for
// but no functions. This file and memory.go are the ones with unsafe code.

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

func errnoOf(e unix.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

func setsockopt[T any](fd, opt int, v *T) error {
	_, _, e := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(opt),
		uintptr(unsafe.Pointer(v)), unsafe.Sizeof(*v), 0)
	return errnoOf(e)
}

// getsockopt returns how many bytes the kernel wrote: older kernels know
// shorter structs.
func getsockopt[T any](fd, opt int, v *T) (int, error) {
	n := uint32(unsafe.Sizeof(*v))
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(opt),
		uintptr(unsafe.Pointer(v)), uintptr(unsafe.Pointer(&n)), 0)
	return int(n), errnoOf(e)
}

// umemReg registers mem as the UMEM of fd, in chunks of frameSize.
func umemReg(fd int, mem []byte) error {
	reg := unix.XDPUmemReg{
		Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))),
		Len:  uint64(len(mem)),
		Size: frameSize,
	}
	err := setsockopt(fd, unix.XDP_UMEM_REG, &reg)
	runtime.KeepAlive(mem)
	return err
}

// The two calls of the data path; tests put a fake kernel in their place.
var (
	kickTX = sendNothing
	kickRX = pollNothing
)

// sendNothing asks the kernel to look at the TX ring of fd. The Go scheduler isn't
// told: a call takes no longer than its budget of descriptors, some 100 µs at most,
// and after 20 µs the scheduler would give the processor to another goroutine, for
// which a poller on a busy machine then waits. That costs a tenth of the packets.
func sendNothing(fd int) unix.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return e
}

// pollNothing asks a sleeping zero-copy driver to look at the FILL ring of fd. It is
// poll, not recvfrom, which AF_XDP sockets have only since Linux 5.11.
func pollNothing(fd int) {
	p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	_, _ = unix.Ppoll(p[:], &unix.Timespec{}, nil)
}

// channels is the part of struct ethtool_channels that the kernel fills in.
type channels struct {
	Cmd                                      uint32
	MaxRx, MaxTx, MaxOther, MaxCombined      uint32
	RxCount, TxCount, OtherCount, CombinedCt uint32
}

// ethtoolChannels asks the driver of ifname for its queue counts.
func ethtoolChannels(ifname string) (ch channels, err error) {
	ch.Cmd = unix.ETHTOOL_GCHANNELS
	err = ethtool(ifname, unsafe.Pointer(&ch))
	return ch, err
}

// linkSettings is struct ethtool_cmd, whose speed is in two halves.
type linkSettings struct {
	Cmd, Supported, Advertising uint32
	Speed                       uint16
	_                           [6]uint8
	_, _                        uint32
	SpeedHi                     uint16
	_                           [2]uint8
	_                           [3]uint32
}

// LinkSpeed asks the driver of ifname, in the network namespace of the calling
// thread, for the speed of its link in Mb/s. It is 0 when the driver doesn't know.
func LinkSpeed(ifname string) int {
	s := linkSettings{Cmd: unix.ETHTOOL_GSET}
	if err := ethtool(ifname, unsafe.Pointer(&s)); err != nil {
		return 0
	}
	speed := int32(uint32(s.SpeedHi)<<16 | uint32(s.Speed))
	return int(max(0, speed)) // -1: a link that is down, or none
}

// ethtool has the kernel answer the ethtool command at data.
func ethtool(ifname string, data unsafe.Pointer) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // struct ifreq is longer than the pointer
	}
	copy(req.name[:len(req.name)-1], ifname)
	req.data = data
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	runtime.KeepAlive(data)
	return errnoOf(e)
}
