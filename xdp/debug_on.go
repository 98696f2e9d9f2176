//go:build xdpdebug

package xdp

import "fmt"

const debug = true

func assertOwner(ok bool, frame uint32, want owner) {
	if !ok {
		panic(fmt.Sprintf("xdp: frame %d is not with owner %d", frame, want))
	}
}
