package qp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapOver replaces the mapping at b by the beginning of a file.
func mapOver(b []byte, fd int) error {
	_, err := unix.MmapPtr(fd, 0, unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
	return err
}
