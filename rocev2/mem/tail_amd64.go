package mem

// amd64 shows stores to others in program order, those of a string instruction
// before the one that follows it: an ordinary store is a release.

func storeTail64(p *uint64, v uint64) { *p = v }
func storeTail32(p *uint32, v uint32) { *p = v }
func storeTail8(p *uint8, v uint8)    { *p = v }
