package proctest

import (
	"os"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
)

// What is mapped after a page was unmapped comes to lie elsewhere.
func TestPagesKeepTheirHoles(t *testing.T) {
	page := os.Getpagesize()
	b, err := Pages(3 * page)
	if err != nil {
		t.Fatal(err)
	}
	hole := reflect.ValueOf(b).Pointer() + uintptr(page)
	if _, _, errno := unix.Syscall(unix.SYS_MUNMAP, hole, uintptr(page), 0); errno != 0 {
		t.Fatal(errno)
	}
	for range 1000 {
		m, err := unix.Mmap(-1, 0, page, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(m)
		if reflect.ValueOf(m).Pointer() == hole {
			t.Fatal("the kernel has filled the hole")
		}
	}
	b[0], b[2*page] = 1, 1
}
