package afpacket

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// offer has the kernel run a filter on a frame, as what a datagram of a pair of unix
// sockets has in it.
type offer struct {
	t    *testing.T
	from int
	to   int
}

func newOffer(t *testing.T, addrs ...[16]byte) *offer {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	f, err := filterFor(addrs)
	if err == nil {
		err = f.attach(fds[1])
	}
	if err != nil {
		t.Fatal(err)
	}
	return &offer{t, fds[0], fds[1]}
}

// takes reports whether the filter lets all of a frame in, or none.
func (o *offer) takes(frame []byte) bool {
	o.t.Helper()
	err := unix.Send(o.from, frame, 0)
	if err != nil && err != unix.EPERM { // EPERM: the receiver's filter
		o.t.Fatal(err)
	}
	buf := make([]byte, 8192)
	n, _, err := unix.Recvfrom(o.to, buf, 0)
	if err == nil && n != len(frame) {
		o.t.Errorf("%d of %d bytes passed", n, len(frame))
	}
	return err == nil
}

func mapped(a, b, c, d byte) [16]byte {
	return [16]byte{10: 0xff, 11: 0xff, 12: a, 13: b, 14: c, 15: d}
}

func frame4(dst [16]byte) []byte {
	f := make([]byte, 100)
	be.PutUint16(f[12:], 0x0800)
	f[14], f[23] = 0x45, 17
	copy(f[30:], dst[12:])
	be.PutUint16(f[36:], 4791)
	return f
}

func frame6(dst [16]byte) []byte {
	f := make([]byte, 120)
	be.PutUint16(f[12:], 0x86dd)
	f[14], f[20] = 0x60, 17
	copy(f[38:], dst[:])
	be.PutUint16(f[56:], 4791)
	return f
}

func with(f []byte, at int, b ...byte) []byte {
	copy(f[at:], b)
	return f
}

func TestFilter(t *testing.T) {
	a4, b4, c4 := mapped(10, 0, 0, 1), mapped(10, 0, 0, 2), mapped(10, 0, 0, 3)
	a6, b6 := [16]byte{0: 0xfd, 15: 1}, [16]byte{0: 0xfe, 1: 0x80, 15: 1}
	c6 := a6
	c6[15] = 2
	o := newOffer(t, a4, a6, b4, b6)
	for _, c := range []struct {
		what  string
		frame []byte
		want  bool
	}{
		{"IPv4", frame4(a4), true},
		{"IPv4, another address", frame4(b4), true},
		{"IPv4, a foreign address", frame4(c4), false},
		{"IPv6", frame6(a6), true},
		{"IPv6, another address", frame6(b6), true},
		{"IPv6, a foreign address, in the last word", frame6(c6), false},
		{"IPv6, a foreign address, in the first word", with(frame6(a6), 38, 0xfc), false},
		{"IPv6 to the mapped form of an IPv4 address", frame6(a4), false},
		{"Don't Fragment", with(frame4(a4), 20, 0x40), true},
		{"a first fragment", with(frame4(a4), 20, 0x20), false},
		{"a later fragment", with(frame4(a4), 21, 1), false},
		{"IP options", with(frame4(a4), 14, 0x46), false},
		{"TCP", with(frame4(a4), 23, 6), false},
		{"TCP, IPv6", with(frame6(a6), 20, 6), false},
		{"an extension header", with(frame6(a6), 20, 44), false},
		{"another port", with(frame4(a4), 37, 0xb8), false},
		{"another port, IPv6", with(frame6(a6), 57, 0xb8), false},
		{"the port as source port", with(with(frame4(a4), 34, 0x12, 0xb7), 36, 1, 2), false},
		{"ARP", with(frame4(a4), 12, 8, 6), false},
		{"a second tag that is still there", with(frame4(a4), 12, 0x81, 0), false},
		{"a frame that ends within the header", frame4(a4)[:37], false},
		{"a frame that ends behind it", frame4(a4)[:38], true},
		{"an empty frame", []byte{0}, false},
	} {
		if got := o.takes(c.frame); got != c.want {
			t.Errorf("%s: taken %v, want %v", c.what, got, c.want)
		}
	}
	none := newOffer(t)
	if none.takes(frame4(a4)) || none.takes(frame6(a6)) {
		t.Error("a filter of no addresses lets something in")
	}
}

// The kernel takes filters of hundreds of addresses; more are an error.
func TestFilterOfManyAddresses(t *testing.T) {
	var addrs [][16]byte
	for i := range 440 {
		addrs = append(addrs, [16]byte{0: 0xfd, 14: byte(i >> 8), 15: byte(i)}, mapped(10, 1, byte(i>>8), byte(i)))
	}
	addrs = addrs[:len(addrs)-40]
	o := newOffer(t, addrs[:420]...)
	for i, a := range addrs[:420] {
		f := frame6(a)
		if is4(a) {
			f = frame4(a)
		}
		if !o.takes(f) {
			t.Fatalf("address %d of 420 is not taken", i)
		}
	}
	if o.takes(frame6(addrs[420])) {
		t.Error("a foreign address is taken")
	}
	var many [][16]byte
	for i := range 500 {
		many = append(many, [16]byte{0: 0xfd, 14: byte(i >> 8), 15: byte(i)})
	}
	if _, err := filterFor(many); !errors.Is(err, unix.E2BIG) {
		t.Error("500 IPv6 addresses:", err)
	}
}

func ExampleOptions() {
	o, err := Options{}.sized()
	fmt.Println(o, err)
	_, err = Options{RxFrames: 1}.sized()
	fmt.Println(err)
	// Output:
	// {2048 256} <nil>
	// afpacket: 1 frames asked for: allowed are 64 to 65536 a direction
}
