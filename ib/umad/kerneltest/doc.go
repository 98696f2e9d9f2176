// Package kerneltest runs the tests of package umad that need a real kernel, in
// the QEMU guests of tests/interop/guest.
package kerneltest
