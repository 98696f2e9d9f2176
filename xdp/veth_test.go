package xdp

import (
	"bytes"
	"testing"

	"github.com/urxe/urxe/internal/nettest"
)

func TestSmoke(t *testing.T) {
	p := nettest.New(t, nettest.Config{MTU: 9000})
	var ports [2]*Port
	for i, e := range p.Ends {
		err := e.NS.Do(func() (err error) {
			ports[i], err = Open(e.Name, Options{Logf: t.Logf})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer ports[i].Close()
		if err := ports[i].AddAddr(e.V4.As16()); err != nil {
			t.Fatal(err)
		}
	}
	a, b := ports[0].Sockets()[0], ports[1].Sockets()[0]
	for _, n := range []int{64, 1500, 3839, 3840, 3841, 3843, 4096, 4097, 4198} {
		f := roceFrame(p.Ends[0], p.Ends[1], n)
		var pk Packet
		if !a.Reserve(&pk, n) {
			t.Fatal("reserve")
		}
		k := copy(pk.Frag[0], f)
		pk.Frag[0] = pk.Frag[0][:k]
		if pk.n == 2 {
			pk.Frag[1] = pk.Frag[1][:copy(pk.Frag[1], f[k:])]
		}
		if !a.Send(&pk) {
			t.Fatal("send")
		}
		if err := a.Flush(); err != nil {
			t.Fatal(err)
		}
		var got [4]Packet
		m := b.Recv(got[:])
		if m != 1 {
			st, _ := ports[1].ProgramStats()
			t.Fatal(n, m, b.Stats(), st)
		}
		if !bytes.Equal(append(append([]byte{}, got[0].Frag[0]...), got[0].Frag[1]...), f) {
			t.Fatal("differs", n, got[0].Len())
		}
		b.Release(got[:m])
	}
	t.Log(ports[0].Stats(), ports[1].Stats())
}
