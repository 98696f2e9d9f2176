//go:build !xdpdebug

package xdp

// debug is set by the build tag xdpdebug: a frame handed over by one who does
// not own it panics where it is counted otherwise, and released frames are
// overwritten.
const debug = false

func assertOwner(bool, uint32, owner) {}
