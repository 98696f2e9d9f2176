// Package interop tests urxe against a peer that is not ours: the kernel's
// rdma_rxe and Debian's RDMA programs, in QEMU guests (see package guest).
package interop
