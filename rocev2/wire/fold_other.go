//go:build !amd64

package wire

const (
	folds     = false // the standard library has the CRC of the processor
	foldsFrom = 0
)

func fold(uint32, []byte) (lo, hi uint64) { return }
