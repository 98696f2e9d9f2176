package verbs

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/tests/conform"
)

// partitioned makes a device with a P_Key table, connected with nobody.
func partitioned(t *testing.T, table ib.PKeyTable) *Device {
	t.Helper()
	l, far, err := rocev2.NewPair(rocev2.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := rocev2.NewPort(rocev2.Config{Name: "part0", Links: []rocev2.Link{l}, PKeys: table,
		Net: &rocev2.FixedNet{Addresses: []ib.GID{{0xfe, 0x80, 15: 1}}}})
	if err != nil {
		t.Fatal(err)
	}
	d := OpenPort(p, Options{})
	t.Cleanup(func() { d.Close(); far.Close() })
	return d
}

// A device tells its P_Key table, and counts what came for other partitions.
func TestPKeyTableOfADevice(t *testing.T) {
	d := partitioned(t, ib.PKeyTable{0xffff, 0x8001, 0x0002})
	a := d.QueryPort()
	if !reflect.DeepEqual(a.PKeyTable, ib.PKeyTable{0xffff, 0x8001, 0x0002}) || a.BadPKeys != 0 || a.QKeyViols != 0 {
		t.Errorf("%+v", a)
	}
	a.PKeyTable[0] = 9
	if k, err := d.QueryPKey(0); k != 0xffff || err != nil {
		t.Errorf("after a change to a copy: %v, %v", k, err)
	}
	if k, err := d.QueryPKey(3); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "allowed: 0 to 2") {
		t.Errorf("index 3: %v, %v", k, err)
	}
	if n := d.Query().MaxPKeys; n != 128 {
		t.Errorf("MaxPKeys %d", n)
	}
	// Two datagram QPs of one device: a matching P_Key, another one, another Q_Key.
	x, y, z := newDgram(t, d, UD), dgramIn(t, d, 1), newDgram(t, d, UD)
	for _, g := range []*dgram{y, z} {
		g.recv(100, GRHLen+8)
	}
	must(x.qp.PostSend(x.to(y, 0, 8)))
	wrong := x.to(z, 0, 8)
	wrong.RemoteQKey++
	must(x.qp.PostSend(wrong))
	must(x.qp.PostSend(x.to(z, 0, 8)))
	if wc := z.wait(); wc.Status != Success {
		t.Fatalf("%+v", wc)
	}
	if a := d.QueryPort(); a.BadPKeys != 1 || a.QKeyViols != 1 {
		t.Errorf("%d bad P_Keys, %d Q_Key violations; want one of each", a.BadPKeys, a.QKeyViols)
	}
}

// dgramIn is newDgram in another partition.
func dgramIn(t *testing.T, d *Device, index uint16) *dgram {
	t.Helper()
	g := newDgram(t, d, UD)
	if err := errors.Join(g.qp.Modify(QPAttr{State: StateReset}, AttrState), g.qp.Start(ConnectOptions{QKey: dgramQKey, PKeyIndex: index})); err != nil {
		t.Fatal(err)
	}
	return g
}

// A device without a MAC address has a GUID, the same one each time.
func TestGUIDWithoutMAC(t *testing.T) {
	conform.Row(t, "bug/62")
	table := ib.PKeyTable{ib.PKeyDefault}
	a, b := partitioned(t, table).Query().NodeGUID, partitioned(t, table).Query().NodeGUID
	if a == 0 || a != b {
		t.Errorf("GUIDs %v and %v", a, b)
	}
}

func TestPKeyIndexOfWorkRequests(t *testing.T) {
	d := partitioned(t, ib.PKeyTable{0xffff, 0x8001})
	ud, gsi := newDgram(t, d, UD), newDgram(t, d, GSI)
	for _, c := range []struct {
		g     *dgram
		index uint16
		says  string
	}{{ud, 0, ""}, {gsi, 1, ""}, {ud, 1, "a QP of type UD sends with the P_Key of its attribute"}, {gsi, 2, "2 entries (allowed: 0 to 1)"}} {
		w := c.g.to(ud, 0, 8)
		w.PKeyIndex = c.index
		_, err := c.g.qp.PostSend(w)
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%v, index %d: %v, want %q", c.g.qp.Type(), c.index, err, c.says)
		}
	}
}
