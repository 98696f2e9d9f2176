package capture

// Block types, option codes and constants of pcapng (draft-ietf-opsawg-pcapng).
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockPacket    = 2 // obsolete
	blockSimple    = 3
	blockEnhanced  = 6

	byteOrderMagic = 0x1a2b3c4d

	optEnd       = 0
	optComment   = 1
	optUserAppl  = 4  // of a section
	optIfName    = 2  // of an interface
	optTsResol   = 9  // of an interface
	optTsOffset  = 14 // of an interface
	optFlags     = 2  // of a packet
	maxOptionLen = 0xffff

	linkTypeEthernet = 1

	// maxFrame is the longest frame that is believed: what libpcap takes at most.
	maxFrame = 256 << 10
	// maxBlock is the longest block that is believed.
	maxBlock = 16 << 20
)

// pad4 returns the bytes that fill n up to a multiple of four.
func pad4(n int) int { return -n & 3 }
