package ibsim

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/urxe/urxe/ib/ibsim/ibsimtest"
	"github.com/urxe/urxe/ib/mad"
)

func TestDataBytes(t *testing.T) {
	p := &mad.Packet{Addr: mad.Addr{LID: 0x1234, QPN: 1}}
	p.MAD().Init(mad.ClassPerf, mad.MethodGet, mad.AttrPortCounters, 0)
	var b [dataSize]byte
	putData(&b, p)
	want := make([]byte, 32)
	copy(want, []byte{0x12, 0x34}) // The first half of the word, whatever the host's order.
	want[11], want[15] = 1, 1
	binary.BigEndian.PutUint64(want[24:], 256)
	if !bytes.Equal(b[:32], want) || !bytes.Equal(b[32:], p.Data[:]) {
		t.Errorf("got % x, want % x", b[:32], want)
	}
	copy(b[4:], []byte{0x56, 0x78})
	var q mad.Packet
	if lost, err := parseData(b[:], &q); lost || err != nil || q.Addr.LID != 0x5678 || q.Addr.QPN != 1 {
		t.Errorf("read as %v, lost %v, %v", &q, lost, err)
	}
	b[19] = statusLost
	if lost, err := parseData(b[:], &q); !lost || err != nil {
		t.Errorf("status 110: lost %v, %v", lost, err)
	}
	for _, n := range []int{0, 31, 287} {
		if _, err := parseData(b[:n], &q); err == nil {
			t.Errorf("%d bytes were taken", n)
		}
	}
}

func TestControlBytes(t *testing.T) {
	var b [ctlSize]byte
	putCtl(&b, 3, ctlConnect, clientInfo(0x01020304, "h3", true))
	if host.Uint32(b[:]) != 0xdeadbeef || host.Uint32(b[4:]) != 3 || host.Uint32(b[8:]) != 1 || host.Uint32(b[12:]) != 44 ||
		host.Uint32(b[16:]) != 0x01020304 || host.Uint32(b[24:]) != 1 || string(b[28:31]) != "h3\x00" {
		t.Errorf("got % x", b)
	}
	if typ, data, err := parseCtl(b[:]); typ != ctlConnect || len(data) != 64 || err != nil {
		t.Errorf("read as %v, %d bytes, %v", typ, len(data), err)
	}
	if _, _, err := parseCtl(b[:79]); err == nil {
		t.Error("79 bytes were taken")
	}
	b[0] ^= 1
	if _, _, err := parseCtl(b[:]); err == nil {
		t.Error("another magic was taken")
	}
}

func FuzzWire(f *testing.F) {
	f.Add(make([]byte, dataSize))
	f.Add(append(make([]byte, 32), bytes.Repeat([]byte{1}, 256)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p mad.Packet
		if _, err := parseData(b, &p); err == nil {
			_ = p.String()
		}
		_, _, _ = parseCtl(b)
	})
}

// Gets that are under way 64 at a time, through stock ibsim.
func BenchmarkGets(b *testing.B) {
	for _, remote := range []bool{false, true} {
		name := "unix"
		if remote {
			name = "UDP"
		}
		b.Run(name, func(b *testing.B) {
			var o Options
			if remote {
				o.Server = ibsimtest.StartRemote(b, "testdata/ft32.net").Addr
			} else {
				o.SockName = ibsimtest.Start(b, "testdata/ft32.net").Name
			}
			p := open(b, o)
			bench(b, p)
		})
	}
}

func bench(b *testing.B, p mad.Port) {
	const depth = 64
	pkt := &mad.Packet{Addr: mad.Direct, Timeout: time.Second, Retries: 3}
	if err := pkt.MAD().InitSMP(mad.MethodGet, mad.AttrNodeInfo, 0, []byte{1}); err != nil {
		b.Fatal(err)
	}
	ps := make([]mad.Packet, depth)
	sent, got := 0, 0
	b.ReportAllocs()
	b.ResetTimer()
	for got < b.N {
		for ; sent < b.N && sent-got < depth; sent++ {
			pkt.MAD().SetTID(uint64(sent))
			if err := p.Send(pkt); err != nil {
				b.Fatal(err)
			}
		}
		n, err := p.Recv(ps)
		if err != nil {
			b.Fatal(err)
		}
		got += n
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "gets/s")
}
