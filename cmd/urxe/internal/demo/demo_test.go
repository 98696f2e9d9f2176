package demo

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/nettest"
)

func checkResult(t *testing.T, r *Result, link string) {
	t.Helper()
	if r.Link != link || len(r.Operations) != 7 {
		t.Fatalf("%+v", r)
	}
	for _, o := range r.Operations {
		if !o.Verified || o.Messages < 8 || o.LatencyUsec <= 0 || o.BandwidthMBps <= 0 {
			t.Errorf("%+v", o)
		}
	}
}

func TestInMemory(t *testing.T) {
	r, err := Run(t.Context(), Options{Link: LinkMem, MTU: ib.MTU4096, Duration: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	checkResult(t, r, "mem")
	var out bytes.Buffer
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"path MTU 4096", "SEND ", "SEND_IMM ", "WRITE ", "WRITE_IMM ", "READ ", "CMP_SWAP ", "FETCH_ADD "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table doesn't say %q:\n%s", want, out.String())
		}
	}
	b, err := json.Marshal(r)
	if err != nil || !bytes.Contains(b, []byte(`"link":"mem"`)) {
		t.Errorf("%s, %v", b, err)
	}
}

func TestOverVeth(t *testing.T) {
	nettest.Require(t)
	for link, rung := range map[string]string{LinkAFXDP: "driver mode, copy", LinkAFPacket: "packet socket"} {
		for _, mtu := range []ib.MTU{ib.MTU1024, ib.MTU4096} {
			r, err := Run(t.Context(), Options{Link: link, MTU: mtu, Duration: 10 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			checkResult(t, r, link)
			if !strings.Contains(r.Rung, rung) {
				t.Errorf("rung %q, reasons %q", r.Rung, r.Reasons)
			}
		}
	}
}

// What the verifier would say if a byte were wrong.
func TestVerifierFindsAWrongByte(t *testing.T) {
	l, err := openMem()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := &demo{o: Options{MTU: ib.MTU1024}, l: l}
	for _, op := range operations {
		p, err := d.connect(verifySize)
		if err != nil {
			t.Fatal(err)
		}
		v := &verifier{ctx: t.Context(), a: p.sides[0], b: p.sides[1], to: p.addrs[1], op: op}
		if err := v.run(); err != nil {
			t.Error(err)
		}
		for _, side := range p.sides {
			side.Buf[4242] ^= 1
			if err := v.compare(); err == nil || !strings.Contains(err.Error(), "from byte 4242 on") {
				t.Errorf("%v: %v", op, err)
			}
			side.Buf[4242] ^= 1
		}
		p.close()
	}
}
