package xdp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Who holds an interface or a queue: so that a refusal can name them. All of
// this is best effort; what cannot be found out is left out.

// list joins names for a message.
func list(names []string) string {
	if len(names) == 0 {
		return "a process that cannot be found"
	}
	return strings.Join(names, ", ")
}

// describeProgram says what is known of an attached program.
func describeProgram(ifindex int, id uint32) string {
	s := fmt.Sprintf("XDP program %d", id)
	if p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id)); err == nil {
		if info, err := p.Info(); err == nil {
			s += fmt.Sprintf(" %q", info.Name)
			if uid, ok := info.CreatedByUID(); ok {
				s += fmt.Sprintf(" loaded by uid %d", uid)
			}
		}
		p.Close()
	}
	if l, ok := linkOf(ifindex, id); ok {
		s += fmt.Sprintf(", attached by link %d", l)
	}
	if who := programHolders(ifindex, id); len(who) > 0 {
		s += ", held by " + list(who)
	}
	return s
}

// linkOf finds the bpf_link that attaches program id to an interface. The index
// alone won't do: each network namespace counts its own.
func linkOf(ifindex int, id uint32) (link.ID, bool) {
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err != nil {
			continue
		}
		if x := info.XDP(); x != nil && int(x.Ifindex) == ifindex && uint32(info.Program) == id {
			return info.ID, true
		}
	}
	return 0, false
}

// programHolders names the processes that hold the link of an interface's
// program, or else the program itself.
func programHolders(ifindex int, id uint32) []string {
	if l, ok := linkOf(ifindex, id); ok {
		return holders(func(dir, fd string) bool { return fdinfoHas(dir, fd, fmt.Sprintf("link_id:\t%d\n", l)) })
	}
	return holders(func(dir, fd string) bool { return fdinfoHas(dir, fd, fmt.Sprintf("prog_id:\t%d\n", id)) })
}

// socketHolders names the processes with an AF_XDP socket on a queue.
func socketHolders(ifindex, queue int) []string {
	inodes, err := xdpSockets(ifindex, queue)
	if err != nil || len(inodes) == 0 {
		return nil
	}
	return holders(func(dir, fd string) bool {
		target, err := os.Readlink(filepath.Join(dir, "fd", fd))
		return err == nil && slices.Contains(inodes, target)
	})
}

// queueHolder says whose socket is on a queue, or whose it may be where the kernel
// has no CONFIG_XDP_SOCKETS_DIAG.
func queueHolder(ifindex, queue int) string {
	if names := socketHolders(ifindex, queue); len(names) > 0 {
		return list(names)
	}
	if names := xdpUsers(); len(names) > 0 {
		return "one of those with AF_XDP sockets: " + list(names)
	}
	return list(nil)
}

// xdpUsers names the processes that have the rings of AF_XDP sockets mapped.
func xdpUsers() (names []string) {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range procs {
		maps, err := os.ReadFile(filepath.Join(dir, "maps"))
		if err == nil && mapsFillRing(maps) {
			names = append(names, process(dir))
		}
	}
	return names
}

// mapsFillRing looks in /proc/PID/maps for a socket mapped at the offset that
// only AF_XDP has.
func mapsFillRing(maps []byte) bool {
	offset := fmt.Appendf(nil, " %08x ", int64(unix.XDP_UMEM_PGOFF_FILL_RING))
	for line := range bytes.Lines(maps) {
		if bytes.Contains(line, offset) && bytes.Contains(line, []byte("socket:[")) {
			return true
		}
	}
	return false
}

// process names the process of a directory in /proc.
func process(dir string) string {
	comm, _ := os.ReadFile(filepath.Join(dir, "comm"))
	return fmt.Sprintf("process %s %q", filepath.Base(dir), bytes.TrimSpace(comm))
}

// holders names the processes with a descriptor that match accepts.
func holders(match func(procDir, fd string) bool) (names []string) {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range procs {
		fds, err := os.ReadDir(filepath.Join(dir, "fd"))
		if err != nil {
			continue // ended, or not ours to look at
		}
		if slices.ContainsFunc(fds, func(e os.DirEntry) bool { return match(dir, e.Name()) }) {
			names = append(names, process(dir))
		}
	}
	return names
}

func fdinfoHas(dir, fd, line string) bool {
	target, err := os.Readlink(filepath.Join(dir, "fd", fd))
	if err != nil || !strings.HasPrefix(target, "anon_inode:bpf") {
		return false
	}
	info, err := os.ReadFile(filepath.Join(dir, "fdinfo", fd))
	return err == nil && bytes.Contains(info, []byte(line))
}

// xdpSockets asks sock_diag for the sockets on a queue, as the names that their
// descriptors have in /proc.
func xdpSockets(ifindex, queue int) (names []string, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, xdpDiagRequest(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	buf := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return nil, err
		}
		inodes, done := parseDiag(buf[:n], ifindex, queue)
		for _, ino := range inodes {
			names = append(names, fmt.Sprintf("socket:[%d]", ino))
		}
		if done {
			return names, nil
		}
	}
}

// parseDiag takes a datagram of sock_diag apart; done says that it is the last.
func parseDiag(b []byte, ifindex, queue int) (inodes []uint32, done bool) {
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		kind := binary.NativeEndian.Uint16(b[4:])
		if kind == unix.NLMSG_DONE || kind == unix.NLMSG_ERROR || size < unix.NLMSG_HDRLEN || size > len(b) {
			return inodes, true
		}
		if ino, ok := onQueue(b[unix.NLMSG_HDRLEN:size], ifindex, queue); ok {
			inodes = append(inodes, ino)
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return inodes, false
}

const (
	sockDiagByFamily = 20
	xdpDiagInfo      = 1 // attribute: ifindex, queue
	xdpShowInfo      = 1
	xdpDiagMsgLen    = 16
)

// xdpDiagRequest is a nlmsghdr and a struct xdp_diag_req.
func xdpDiagRequest() []byte {
	b := make([]byte, unix.NLMSG_HDRLEN+20)
	ne := binary.NativeEndian
	ne.PutUint32(b[0:], uint32(len(b)))
	ne.PutUint16(b[4:], sockDiagByFamily)
	ne.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b[16] = unix.AF_XDP
	ne.PutUint32(b[24:], xdpShowInfo)
	return b
}

// onQueue takes a struct xdp_diag_msg with its attributes apart.
func onQueue(msg []byte, ifindex, queue int) (inode uint32, ok bool) {
	if len(msg) < xdpDiagMsgLen {
		return 0, false
	}
	ne := binary.NativeEndian
	inode = ne.Uint32(msg[4:])
	for b := msg[xdpDiagMsgLen:]; len(b) >= 4; {
		size := int(ne.Uint16(b))
		if size < 4 || size > len(b) {
			return 0, false
		}
		if ne.Uint16(b[2:]) == xdpDiagInfo && size >= 12 {
			return inode, int(ne.Uint32(b[4:])) == ifindex && int(ne.Uint32(b[8:])) == queue
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return 0, false
}
