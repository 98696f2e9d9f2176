package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// order can both put and append.
type order interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// pcapFile makes a pcap with n copies of frame, a second and three units apart.
func pcapFile(o order, magic uint32, linkType uint32, n int) []byte {
	b := o.AppendUint32(nil, magic)
	b = o.AppendUint16(b, 2)
	b = o.AppendUint16(b, 4)
	for _, v := range []uint32{0, 0, 65535, linkType} {
		b = o.AppendUint32(b, v)
	}
	for i := range n {
		for _, v := range []uint32{uint32(1000 + i), uint32(3 * i), uint32(len(frame)), uint32(len(frame) + i)} {
			b = o.AppendUint32(b, v)
		}
		b = append(b, frame...)
	}
	return b
}

func TestPcap(t *testing.T) {
	for _, c := range []struct {
		o     order
		magic uint32
		unit  time.Duration
	}{
		{binary.LittleEndian, 0xa1b2c3d4, time.Microsecond}, {binary.BigEndian, 0xa1b2c3d4, time.Microsecond},
		{binary.LittleEndian, 0xa1b23c4d, time.Nanosecond}, {binary.BigEndian, 0xa1b23c4d, time.Nanosecond},
	} {
		t.Run(fmt.Sprintf("%v %v", c.o, c.unit), func(t *testing.T) {
			r, err := NewReader(bytes.NewReader(pcapFile(c.o, c.magic, 1, 3)))
			if err != nil {
				t.Fatal(err)
			}
			all, err := readAll(r)
			if err != io.EOF || len(all) != 3 {
				t.Fatalf("%d packets, then %v", len(all), err)
			}
			for i, p := range all {
				at := time.Unix(1000+int64(i), int64(3*i)*int64(c.unit))
				if !p.Time.Equal(at) || !bytes.Equal(p.Data, frame) || p.Length != len(frame)+i {
					t.Errorf("packet %d at %v: %d bytes of %d", i, p.Time, len(p.Data), p.Length)
				}
			}
		})
	}
}

// ng makes pcapng files by hand, of either byte order.
type ng struct {
	o order
	b []byte
}

func (g *ng) block(kind uint32, body []byte) *ng {
	n := uint32(len(body) + pad4(len(body)) + 12)
	g.b = g.o.AppendUint32(g.o.AppendUint32(g.b, kind), n)
	g.b = append(append(g.b, body...), make([]byte, pad4(len(body)))...)
	g.b = g.o.AppendUint32(g.b, n)
	return g
}

func (g *ng) words(v ...uint32) (b []byte) {
	for _, w := range v {
		b = g.o.AppendUint32(b, w)
	}
	return b
}

func (g *ng) option(code uint16, v string) []byte {
	b := g.o.AppendUint16(g.o.AppendUint16(nil, code), uint16(len(v)))
	return append(append(b, v...), make([]byte, pad4(len(v)))...)
}

func (g *ng) section() *ng {
	version := g.o.AppendUint16(g.o.AppendUint16(nil, 1), 0)
	return g.block(blockSection, append(append(g.words(byteOrderMagic), version...), g.words(^uint32(0), ^uint32(0))...))
}

func (g *ng) iface(linkType uint16, snapLen uint32, options ...[]byte) *ng {
	b := append(g.o.AppendUint16(g.o.AppendUint16(nil, linkType), 0), g.words(snapLen)...)
	return g.block(blockInterface, append(b, bytes.Join(options, nil)...))
}

func TestPcapng(t *testing.T) {
	for _, o := range []order{binary.LittleEndian, binary.BigEndian} {
		t.Run(o.String(), func(t *testing.T) { testPcapng(t, o) })
	}
}

// testPcapng reads all kinds of blocks, in two sections.
func testPcapng(t *testing.T, o order) {
	g := &ng{o: o}
	data := append(bytes.Clone(frame), 0, 0, 0)[:len(frame)+1]
	g.section()
	g.block(0x0bad, []byte("some block of others"))
	offset := string(append(g.words(0, 0)[:0], func() []byte { b := make([]byte, 8); o.PutUint64(b, 100); return b }()...))
	g.iface(1, 40, g.option(optIfName, "veth0"), g.option(optTsResol, "\x8a"), g.option(optTsOffset, offset))
	g.iface(1, 0, g.option(7, "x"))
	n := uint32(len(data))
	g.block(blockEnhanced, bytes.Join([][]byte{g.words(0, 0, 5<<10|512, n, n+7), data, make([]byte, pad4(len(data))),
		g.option(optComment, "one"), g.option(optComment, "two"), g.option(optFlags, string(g.words(0x102))), g.words(optEnd)}, nil))
	obsolete := append(o.AppendUint16(o.AppendUint16(nil, 1), 99), g.words(0, 7000001, n, n)...)
	g.block(blockPacket, append(obsolete, data...))
	g.block(blockSimple, append(g.words(n), data[:40]...))
	other := &ng{o: binary.LittleEndian}
	if o == order(binary.LittleEndian) {
		other.o = binary.BigEndian
	}
	other.section().iface(1, 0)
	other.block(blockSimple, append(other.words(n), data...))

	r, err := NewReader(bytes.NewReader(append(g.b, other.b...)))
	if err != nil {
		t.Fatal(err)
	}
	all, err := readAll(r)
	if err != io.EOF || len(all) != 4 {
		t.Fatalf("%d packets, then %v", len(all), err)
	}
	if p := all[0]; !p.Time.Equal(time.Unix(105, 500000000)) || p.Interface != "veth0" || p.Comment != "one; two" ||
		p.Direction != Out || !bytes.Equal(p.Data, data) || p.Length != len(data)+7 {
		t.Errorf("enhanced packet: %+v", p)
	}
	if p := all[1]; !p.Time.Equal(time.Unix(7, 1000)) || p.Interface != "" || p.Direction != Unknown || !bytes.Equal(p.Data, data) {
		t.Errorf("obsolete packet: %+v", p)
	}
	if p := all[2]; !p.Time.IsZero() || !bytes.Equal(p.Data, data[:40]) || p.Length != len(data) {
		t.Errorf("simple packet: %+v", p)
	}
	if p := all[3]; !bytes.Equal(p.Data, data) {
		t.Errorf("packet of the second section: %+v", p)
	}
}

// TestTruncated cuts captures at every byte: the packets before come, and then
// either the end or an error that says where.
func TestTruncated(t *testing.T) {
	var b bytes.Buffer
	write(t, &b, sample())
	for name, whole := range map[string][]byte{"pcap": pcapFile(binary.LittleEndian, 0xa1b2c3d4, 1, 3), "pcapng": b.Bytes()} {
		ends := recordEnds(t, whole)
		for cut := range len(whole) {
			r, err := NewReader(bytes.NewReader(whole[:cut]))
			if err != nil {
				if cut >= ends[0] {
					t.Errorf("%s cut at %d: %v", name, cut, err)
				}
				continue
			}
			all, err := readAll(r)
			packets := 0
			for packets+1 < len(ends) && ends[packets+1] <= cut {
				packets++
			}
			var damage *DamageError
			if errors.As(err, &damage) {
				if damage.Packets != packets || damage.Offset > int64(cut) || damage.Offset < int64(ends[packets]) && packets > 0 {
					t.Errorf("%s cut at %d: %v", name, cut, err)
				}
			} else if err != io.EOF {
				t.Errorf("%s cut at %d: %v", name, cut, err)
			}
			if len(all) != packets {
				t.Errorf("%s cut at %d: %d packets, want %d", name, cut, len(all), packets)
			}
		}
	}
}

// recordEnds returns where the header and each packet of a capture end.
func recordEnds(t *testing.T, whole []byte) (ends []int) {
	r, err := NewReader(bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	for {
		ends = append(ends, int(r.off))
		if _, err := r.Next(); err != nil {
			return ends
		}
	}
}

func TestDamage(t *testing.T) {
	le := binary.LittleEndian
	whole := func() *ng { return (&ng{o: le}).section().iface(1, 0, (&ng{o: le}).option(optIfName, "eth0")) }
	good := append((&ng{o: le}).words(0, 0, 0, uint32(len(frame)), uint32(len(frame))), frame...)
	for _, c := range []struct {
		name, want string
		file       func(g *ng)
	}{
		{"lengths differ", "bytes long at its beginning and 13 at its end", func(g *ng) { g.block(blockEnhanced, good); le.PutUint32(g.b[len(g.b)-4:], 13) }},
		{"odd length", "a block of 33 bytes: want a multiple of 4, from 12 to", func(g *ng) { g.b = append(g.b, g.words(6, 33)...) }},
		{"tiny length", "a block of 8 bytes", func(g *ng) { g.b = append(g.b, g.words(6, 8)...) }},
		{"huge length", "a block of 4294967292 bytes", func(g *ng) { g.b = append(g.b, g.words(6, 0xfffffffc)...) }},
		{"long length", "the file ends in the middle of it", func(g *ng) { g.b = append(g.b, g.words(6, 1<<20)...) }},
		{"long length, part of it", "the file ends 8 bytes into something 1048568 bytes long", func(g *ng) { g.b = append(g.b, g.words(6, 1<<20, 0, 0)...) }},
		{"short packet block", "a packet block of 4 bytes", func(g *ng) { g.block(blockEnhanced, g.words(0)) }},
		{"short simple block", "a simple packet block of 0 bytes", func(g *ng) { g.block(blockSimple, nil) }},
		{"short interface block", "an interface block of 4 bytes", func(g *ng) { g.block(blockInterface, g.words(1)) }},
		{"no such interface", "a packet of interface 7, of which there are 1", func(g *ng) { g.block(blockEnhanced, append(g.words(7), good[4:]...)) }},
		{"packet longer than block", "in a block that has room for", func(g *ng) { g.block(blockEnhanced, good[:40]) }},
		{"option too long", "an option of 77 bytes where 4 are left", func(g *ng) { g.block(blockEnhanced, append(bytes.Clone(good), pad(good, g.words(77<<16|1, 0))...)) }},
		{"resolution", "a time resolution of 0x14", func(g *ng) { g.iface(1, 0, g.option(optTsResol, "\x14")) }},
		{"binary resolution", "a time resolution of 0xff", func(g *ng) { g.iface(1, 0, g.option(optTsResol, "\xff")) }},
		{"section magic", "byte-order magic", func(g *ng) { g.block(blockSection, g.words(1, 1, 0, 0)) }},
		{"section version", "version 2.0", func(g *ng) { g.block(blockSection, g.words(byteOrderMagic, 2, 0, 0)) }},
		{"short section", "a block of 16 bytes: want a multiple of 4, from 28 to", func(g *ng) { g.block(blockSection, g.words(byteOrderMagic)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := whole().block(blockEnhanced, good)
			at := len(g.b)
			c.file(g)
			r, err := NewReader(bytes.NewReader(g.b))
			if err != nil {
				t.Fatal(err)
			}
			all, err := readAll(r)
			var damage *DamageError
			if !errors.As(err, &damage) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q", err, c.want)
			}
			if len(all) != 1 || damage.Packets != 1 || damage.Offset != int64(at) {
				t.Errorf("%d packets, error %v; want 1 and byte %d", len(all), err, at)
			}
		})
	}
}

// pad fills data up to a multiple of four, and appends more.
func pad(data, more []byte) []byte { return append(make([]byte, pad4(len(data))), more...) }

func TestPcapDamage(t *testing.T) {
	for name, c := range map[string]struct {
		at   int
		v    uint32
		want string
	}{
		"length": {at: 8, v: 1 << 30, want: "a packet of 1073741824 bytes"},
		"time":   {at: 4, v: 1000000, want: "fraction of a second"},
	} {
		b := pcapFile(binary.BigEndian, 0xa1b2c3d4, 1, 2)
		record := 24 + 16 + len(frame)
		binary.BigEndian.PutUint32(b[record+c.at:], c.v)
		r, err := NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		all, err := readAll(r)
		var damage *DamageError
		if len(all) != 1 || !errors.As(err, &damage) || damage.Offset != int64(record) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %d packets, %v", name, len(all), err)
		}
	}
}

func TestNotReadable(t *testing.T) {
	le := binary.LittleEndian
	version := pcapFile(le, 0xa1b2c3d4, 1, 0)
	version[4] = 3
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty":    {nil, "empty"},
		"3 bytes":  {[]byte("abc"), "ends after 3 bytes"},
		"text":     {[]byte("hello world, this is no capture"), "neither pcap nor pcapng"},
		"gzip":     {[]byte("\x1f\x8b\x08\x00abcdefgh"), "unpack it"},
		"version":  {version, "version 3.4"},
		"linktype": {pcapFile(le, 0xa1b2c3d4, 113, 1), "link type 113 (Linux cooked"},
		"unknown":  {pcapFile(le, 0xa1b2c3d4, 4711, 1), "link type 4711 (unknown)"},
	} {
		if _, err := NewReader(bytes.NewReader(c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestPcapngLinkType(t *testing.T) {
	g := &ng{o: binary.LittleEndian}
	g.section().iface(247, 0, g.option(optIfName, "ib0")).block(blockSimple, g.words(0))
	r, err := NewReader(bytes.NewReader(g.b))
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Next()
	if want := "link type 247 (InfiniBand) on interface ib0"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }

func TestSourceFails(t *testing.T) {
	whole := pcapFile(binary.LittleEndian, 0xa1b2c3d4, 1, 1)
	for cut := range len(whole) {
		r, err := NewReader(io.MultiReader(bytes.NewReader(whole[:cut]), failing{errBroken}))
		if err == nil {
			_, err = readAll(r)
		}
		if !errors.Is(err, errBroken) {
			t.Errorf("source fails after %d bytes: %v", cut, err)
		}
	}
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pcap")
	if _, err := Open(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that isn't: %v", err)
	}
	os.WriteFile(path, []byte("nothing of the sort"), 0o600)
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file that is no capture: %v", err)
	}
	os.WriteFile(path, pcapFile(binary.LittleEndian, 0xa1b2c3d4, 1, 2), 0o600)
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := readAll(r); len(all) != 2 || err != io.EOF {
		t.Errorf("%d packets, then %v", len(all), err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func FuzzReader(f *testing.F) {
	var b bytes.Buffer
	w, _ := NewWriter(&b)
	id, _ := w.AddInterface("eth0")
	w.Write(id, start, In, [2][]byte{frame}, len(frame), "accepted")
	w.Flush()
	f.Add(b.Bytes())
	f.Add(pcapFile(binary.BigEndian, 0xa1b23c4d, 1, 2))
	f.Add((&ng{o: binary.BigEndian}).section().iface(1, 60).block(blockSimple, append([]byte{0, 0, 0, 58}, frame...)).b)
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := NewReader(bytes.NewReader(file))
		if err != nil {
			return
		}
		for range len(file) {
			p, err := r.Next()
			if err != nil {
				return
			}
			if len(p.Data) > p.Length || len(p.Data) > len(file) {
				t.Fatalf("packet of %d bytes, %d on the wire, in a file of %d", len(p.Data), p.Length, len(file))
			}
		}
		t.Fatal("more packets than bytes")
	})
}
