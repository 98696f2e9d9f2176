package mem

// Gather copies into frag from va of m at once, without an op: to collect one
// first costs a twentieth of a small packet. It reports false, having done
// nothing, where that has to be an op: while others wait, and for what isn't this
// process's memory, or may end within a Step, or isn't there.
func (b *Batch) Gather(m *MR, va uint64, frag *[2][]byte) bool {
	n := uint64(len(frag[0]) + len(frag[1]))
	if b.n > 0 || m.local == nil || m.more != nil || m.Dead() || !m.contains(va, n) {
		return false
	}
	raceLock()
	gather(m.local[va-m.IOVA:][:n], frag)
	raceUnlock()
	return true
}
