package mem

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Process is another process's memory; addresses are that process's. Use one
// Process for each process, whatever number of regions it has.
//
// The process is known by pid, which the kernel looks up anew for every call.
// So each call is preceded by a look whether the process has exited, and the
// pid may have a new user, and whether its memory has, as after an execve: then
// its ops fault. Between the look and the call is a microsecond, and a process
// that shares its memory with another (CLONE_VM) hides an execve. Who serves
// processes of other users with more rights than theirs must not rely on this
// against a hostile one, which could have its peers write into a set-user-ID
// program that it becomes, but call with the rights of the process's user.
//
// What an op does is not atomic to the process's own instructions, and neither
// are CompareSwap and FetchAdd: they are atomic among the ops of this program
// only, as those of an adapter with IBV_ATOMIC_HCA.
type Process struct {
	pid     int
	pidfd   int
	pagemap int // of the memory that the process had when this was made
	dead    atomic.Bool
}

// NewProcess makes a Space of the memory of process pid. It needs the right to
// trace that process: the same user and a dumpable process, or CAP_SYS_PTRACE.
// Who was told of the process by others uses NewProcessFD, as the pid might
// have changed hands.
func NewProcess(pid int) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("open process %d: pidfd_open: %w", pid, err)
	}
	return newProcess(pid, fd)
}

// NewProcessFD is NewProcess of the process that a pidfd, as SO_PEERPIDFD
// gives it, refers to. The fd remains the caller's.
func NewProcessFD(pidfd int) (*Process, error) {
	pid, err := pidOf(pidfd)
	if err != nil {
		return nil, fmt.Errorf("open process of pidfd %d: %w", pidfd, err)
	}
	fd, err := unix.FcntlInt(uintptr(pidfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open process %d: duplicate pidfd %d: %w", pid, pidfd, err)
	}
	return newProcess(pid, fd)
}

// newProcess takes over the pidfd.
func newProcess(pid, pidfd int) (*Process, error) {
	p := &Process{pid: pid, pidfd: pidfd, pagemap: -1}
	if err := p.probe(); err != nil {
		p.Close()
		return nil, fmt.Errorf("access memory of process %d: %w", pid, err)
	}
	return p, nil
}

// probe finds out whether the kernel lets us at the memory. Address 0 is
// normally unmapped, which is only looked at after the permission.
func (p *Process) probe() error {
	var b [1]byte
	local := []unix.Iovec{{Base: &b[0], Len: 1}}
	_, err := unix.ProcessVMReadv(p.pid, local, []unix.RemoteIovec{{Base: 0, Len: 1}}, 0)
	switch {
	case err == unix.EPERM:
		return fmt.Errorf("%w: run as root, give this program CAP_SYS_PTRACE, or run both as one user (see also kernel.yama.ptrace_scope)", err)
	case err == unix.ENOSYS:
		return fmt.Errorf("%w: the kernel was built without CONFIG_CROSS_MEMORY_ATTACH", err)
	case err != nil && err != unix.EFAULT:
		return err
	}
	p.pagemap, err = unix.Open(fmt.Sprintf("/proc/%d/pagemap", p.pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open its pagemap: %w (is /proc mounted, without hidepid?)", err)
	}
	if !p.alive() {
		return unix.ESRCH
	}
	return nil
}

// PID returns the process's id.
func (p *Process) PID() int { return p.pid }

// Abandon makes all later ops on the process's memory fault. One that is stuck
// in the kernel goes on until the kernel lets it go, in buffers of its own.
func (p *Process) Abandon() { p.dead.Store(true) }

// Dead reports whether ops on the process's memory can only fault: it has
// exited, was abandoned, or kept an op waiting beyond the limit (Batch.Guard).
// It is noticed when an op is tried.
func (p *Process) Dead() bool { return p.dead.Load() }

// Close abandons the process and releases its descriptors. As with Deregister,
// every worker must pass a Step boundary between Abandon and Close.
func (p *Process) Close() error {
	p.Abandon()
	if p.pagemap >= 0 {
		unix.Close(p.pagemap)
	}
	return unix.Close(p.pidfd)
}

// alive looks whether the pid still leads to the memory it did.
func (p *Process) alive() bool {
	if p.Dead() {
		return false
	}
	if !p.running() || !p.sameMemory() {
		p.Abandon()
		return false
	}
	return true
}

// running asks whether the process hasn't been reaped: until then its pid isn't
// given to another.
func (p *Process) running() bool {
	_, _, errno := unix.RawSyscall6(unix.SYS_PIDFD_SEND_SIGNAL, uintptr(p.pidfd), 0, 0, 0, 0, 0)
	return errno != unix.ESRCH // EPERM: no right to signal, but there
}

// sameMemory asks whether the memory that the process had at first is still in
// use. Of memory in use, the kernel refuses to read less than an entry of the
// pagemap; of memory that isn't, there is nothing to read.
func (p *Process) sameMemory() bool {
	_, _, errno := unix.Syscall6(unix.SYS_PREAD64, uintptr(p.pagemap), 0, 1, 0, 0, 0)
	return errno == unix.EINVAL
}

// attach checks that the whole range is mapped, and writable if it is to be
// written, as the pinning of pages would. Nothing is pinned: what the process
// unmaps later faults when it is used.
func (p *Process) attach(m *MR) error {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", p.pid))
	if err != nil {
		return fmt.Errorf("read the mappings of process %d: %w", p.pid, err)
	}
	defer f.Close()
	if err := checkMapped(f, m.addr, m.addr+m.Length, m.Access&LocalWrite != 0); err != nil {
		return fmt.Errorf("range %#x+%#x of process %d: %w", m.addr, m.Length, p.pid, err)
	}
	if !p.alive() {
		return fmt.Errorf("process %d has exited or was abandoned: %w", p.pid, unix.ESRCH)
	}
	m.proc = p
	return nil
}

// checkMapped reads a maps file: lines "start-end perms …", ascending.
func checkMapped(maps io.Reader, addr, end uint64, write bool) error {
	lines := bufio.NewScanner(maps)
	for addr < end && lines.Scan() {
		var lo, hi uint64
		var perms string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %4s", &lo, &hi, &perms); err != nil {
			return fmt.Errorf("unexpected mapping %q: %w", lines.Text(), err)
		}
		switch {
		case hi <= addr:
			continue
		case lo > addr:
			return fmt.Errorf("nothing is mapped at %#x: %w", addr, unix.EFAULT)
		case perms[0] != 'r' || write && perms[1] != 'w':
			return fmt.Errorf("the mapping at %#x is %s, which the access flags don't fit: %w", addr, perms, unix.EFAULT)
		}
		addr = hi
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if addr < end {
		return fmt.Errorf("nothing is mapped at %#x: %w", addr, unix.EFAULT)
	}
	return nil
}

// pidOf returns the process that a pidfd refers to, in our pid namespace.
func pidOf(pidfd int) (int, error) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", pidfd))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(info) {
		if v, ok := bytes.CutPrefix(line, []byte("Pid:")); ok {
			pid, err := strconv.Atoi(string(bytes.TrimSpace(v)))
			if err == nil && pid <= 0 {
				return 0, fmt.Errorf("the process has exited or is of another pid namespace: %w", unix.ESRCH)
			}
			return pid, err
		}
	}
	return 0, errors.New("not a pidfd")
}
