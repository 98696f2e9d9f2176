// Package golden holds packets that real peers sent, and checks that wire reads
// and writes every one of them byte for byte.
package golden

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/urxe/urxe/rocev2/wire"
)

func TestGolden(t *testing.T) {
	files, err := filepath.Glob("*.pcap")
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	total := 0
	for _, name := range files {
		t.Run(name, func(t *testing.T) {
			for i, raw := range read(t, name) {
				reemit(t, i+1, raw)
				total++
			}
		})
	}
	t.Logf("%d packets of %d captures", total, len(files))
}

func read(t *testing.T, name string) (packets [][]byte) {
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for {
		b, _, err := r.ReadPacketData()
		if err == io.EOF {
			return packets
		}
		if err != nil {
			t.Fatal(err)
		}
		packets = append(packets, b)
	}
}

// reemit parses raw to values and emits these into a buffer full of 0xA5: the
// same bytes must come out.
func reemit(t *testing.T, n int, raw []byte) {
	t.Helper()
	var p wire.Packet
	f := wire.Frame{Frag: [2][]byte{bytes.Clone(raw)}}
	v := wire.Parse(&p, &f)
	flow := wire.FlowOf(&p)
	if v == wire.DropICRC && wire.RxeFlushHolds(&p) {
		v, flow.RxeFlush = wire.Accepted, true
	}
	if v != wire.Accepted {
		t.Fatalf("packet %d: %v", n, v)
	}
	var tmpl wire.Template
	tmpl.Set(&flow)
	out := wire.Frame{Frag: [2][]byte{bytes.Repeat([]byte{0xa5}, len(raw)+8)}}
	h := p.Header
	payload := tmpl.Emit(&out, &h, p.Len)
	copy(payload[0], p.Payload[0])
	tmpl.Seal(&out)
	if !bytes.Equal(out.Frag[0], raw) {
		t.Errorf("packet %d: %v emitted as\n%x, was\n%x", n, h.Opcode, out.Frag[0], raw)
	}
}
