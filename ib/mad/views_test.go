package mad

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/seeded"
)

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func layoutByName(t *testing.T, name string) *Layout {
	for _, v := range Views {
		if v.Layout().Name == name {
			return v.Layout()
		}
	}
	t.Fatalf("no view %q", name)
	return nil
}

func (l *Layout) field(name string) *Field {
	for i := range l.Fields {
		if l.Fields[i].Name == name {
			return &l.Fields[i]
		}
	}
	return nil
}

// What libibmad's mad_get_field reads from a buffer of noise: the first line
// is the buffer, the others view, field, element and value. Of fields of more
// than 64 bits the value is that of the first 64.
func TestLayoutsAgreeWithLibibmad(t *testing.T) {
	f, err := os.Open("testdata/libibmad.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Scan()
	buf, err := hex.DecodeString(s.Text())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; s.Scan(); n++ {
		var view, name string
		var i int
		var want uint64
		if _, err := fmt.Sscanf(s.Text(), "%s %s %d %x", &view, &name, &i, &want); err != nil {
			t.Fatal(err)
		}
		fd := layoutByName(t, view).field(name)
		if fd == nil {
			t.Fatalf("%s has no field %s", view, name)
		}
		cut := *fd
		cut.Bits = min(cut.Bits, 64)
		if got := cut.Get(buf, i); got != want {
			t.Errorf("%s.%s %d is 0x%x, libibmad says 0x%x", view, name, i, got, want)
		}
	}
	if n < 300 {
		t.Errorf("only %d fields were compared", n)
	}
}

// Each field: what is set is read, by accessor and by layout, and no other bit
// changes.
func TestFieldsRoundTrip(t *testing.T) {
	r := seeded.Rand(t)
	for _, v := range Views {
		l := v.Layout()
		for range 20 {
			for i := range l.Fields {
				if f := &l.Fields[i]; f.Name != "" {
					checkField(t, r, reflect.TypeOf(v), l, f)
				}
			}
		}
	}
}

func checkField(t *testing.T, r *rand.Rand, typ reflect.Type, l *Layout, f *Field) {
	before := noise(r, l.Size)
	after := append([]byte(nil), before...)
	view := reflect.ValueOf(after).Convert(typ)
	get := view.MethodByName(f.Name)
	set := view.MethodByName("Set" + f.Name)
	i := r.IntN(f.Count)
	var index []reflect.Value
	if f.Count > 1 {
		index = []reflect.Value{reflect.ValueOf(i)}
	}
	begin, end := f.Bit+i*f.Bits, f.Bit+(i+1)*f.Bits
	switch {
	case !get.IsValid():
		t.Fatalf("%s has no accessor %s", l.Name, f.Name)
	case !set.IsValid():
		checkWindow(t, l, f, get.Call(index)[0], after)
		return
	case f.Bits > 64:
		setWide(r, set, get, t, l, f)
	default:
		x := reflect.New(set.Type().In(len(index))).Elem()
		want := setRandom(r, x, f.Bits)
		set.Call(append(index, x))
		if got := f.Get(after, i); got != want {
			t.Fatalf("%s.%s: set 0x%x, the layout reads 0x%x", l.Name, f.Name, want, got)
		}
		if got := number(get.Call(index)[0]); got != want {
			t.Fatalf("%s.%s: set 0x%x, got 0x%x", l.Name, f.Name, want, got)
		}
	}
	for b := range l.Size * 8 {
		if (b < begin || b >= end) && (before[b/8]^after[b/8])>>(7-b%8)&1 != 0 {
			t.Fatalf("setting %s.%s changed bit %d, which is not one of %d to %d", l.Name, f.Name, b, begin, end-1)
		}
	}
}

// setRandom sets x to chance, with bits beyond the field's too if it has room,
// and returns what the field should keep.
func setRandom(r *rand.Rand, x reflect.Value, bits int) uint64 {
	v := r.Uint64()
	if x.Kind() == reflect.Bool {
		x.SetBool(v&1 != 0)
		return v & 1
	}
	x.SetUint(v & (1<<(x.Type().Bits()-1)*2 - 1))
	return x.Uint() & (1<<(bits-1)*2 - 1)
}

func number(v reflect.Value) uint64 {
	if v.Kind() != reflect.Bool {
		return v.Uint()
	}
	if v.Bool() {
		return 1
	}
	return 0
}

// setWide sets GIDs and texts.
func setWide(r *rand.Rand, set, get reflect.Value, t *testing.T, l *Layout, f *Field) {
	if set.Type().In(0) == reflect.TypeFor[ib.GID]() {
		want := ib.GID(noise(r, 16))
		set.Call([]reflect.Value{reflect.ValueOf(want)})
		if got := get.Call(nil)[0].Interface(); got != want {
			t.Fatalf("%s.%s: set %v, got %v", l.Name, f.Name, want, got)
		}
		return
	}
	want := "a node of some name"[:r.IntN(19)]
	set.Call([]reflect.Value{reflect.ValueOf(want)})
	if got := get.Call(nil)[0].String(); got != want {
		t.Fatalf("%s.%s: set %q, got %q", l.Name, f.Name, want, got)
	}
}

// checkWindow checks views inside of others, and bytes.
func checkWindow(t *testing.T, l *Layout, f *Field, got reflect.Value, b []byte) {
	want := b[f.Bit/8 : (f.Bit+f.Bits)/8]
	if got.Len() != len(want) || got.Pointer() != reflect.ValueOf(want).Pointer() {
		t.Fatalf("%s.%s is not bytes %d to %d", l.Name, f.Name, f.Bit/8, (f.Bit+f.Bits)/8)
	}
}

func TestTextIsCutAndPadded(t *testing.T) {
	v := make(NodeDescription, NodeDescriptionSize)
	long := string(make([]byte, 0)) + "0123456789012345678901234567890123456789012345678901234567890123456789"
	v.SetDescription(long)
	if got := v.Description(); got != long[:64] {
		t.Errorf("got %q", got)
	}
	v.SetDescription("x")
	if got := v.Description(); got != "x" || v[1] != 0 || v[63] != 0 {
		t.Errorf("got %q in %x", got, []byte(v))
	}
}

// The numbers that ib_types.h and the IBA give components of records.
func TestComponentNumbers(t *testing.T) {
	for _, c := range []struct {
		record, field string
		want          int
	}{
		{"NodeRecord", "LID", 0}, {"NodeRecord", "NodeType", 4}, {"NodeRecord", "PortGUID", 8},
		{"NodeRecord", "VendorID", 13}, {"NodeRecord", "Description", 14},
		{"PortInfoRecord", "EndportLID", 0}, {"PortInfoRecord", "PortNum", 1}, {"PortInfoRecord", "Options", 2},
		{"PortInfoRecord", "CapabilityMask", 7}, {"PortInfoRecord", "PortState", 15}, {"PortInfoRecord", "LMC", 20},
		{"PortInfoRecord", "MTUCap", 31}, {"PortInfoRecord", "ClientReregister", 43}, {"PortInfoRecord", "SubnetTimeOut", 45},
		{"PortInfoRecord", "LinkRoundTripLatency", 52}, {"PortInfoRecord", "LinkSpeedExtEnabled", 57},
		{"PathRecord", "ServiceID", 0}, {"PathRecord", "DGID", 2}, {"PathRecord", "SLID", 5}, {"PathRecord", "FlowLabel", 8},
		{"PathRecord", "NumbPath", 12}, {"PathRecord", "SL", 15}, {"PathRecord", "PacketLifeTime", 21},
		{"MCMemberRecord", "MGID", 0}, {"MCMemberRecord", "SL", 12}, {"MCMemberRecord", "JoinState", 16}, {"MCMemberRecord", "ProxyJoin", 17},
		{"ServiceRecord", "ServiceKey", 5}, {"ServiceRecord", "ServiceData16", 23}, {"ServiceRecord", "ServiceData64", 35},
		{"MultiPathRecord", "SL", 9}, {"MultiPathRecord", "ServiceID8MSB", 16}, {"MultiPathRecord", "ServiceID56LSB", 21},
		{"GUIDInfoRecord", "GUID", 4}, {"SMInfoRecord", "GUID", 2}, {"SMInfoRecord", "SMState", 6},
		{"InformInfoRecord", "Enum", 1}, {"InformInfoRecord", "GID", 3}, {"InformInfoRecord", "Producer", 15},
		{"MulticastForwardingTableRecord", "BlockNum", 3}, {"PKeyTableRecord", "PortNum", 2}, {"LinkRecord", "ToLID", 3},
		{"SLtoVLMappingTableRecord", "OutputPortNum", 2}, {"VLArbitrationTableRecord", "BlockNum", 2},
	} {
		if got := layoutByName(t, c.record).Component(c.field); got != c.want {
			t.Errorf("%s.%s is component %d, want %d", c.record, c.field, got, c.want)
		}
	}
}

func TestMatches(t *testing.T) {
	r := seeded.Rand(t)
	for _, v := range Views {
		l := v.Layout()
		record := noise(r, l.Size)
		l.Components(func(n int, f *Field, i, base int) {
			query := noise(r, l.Size)
			mask := (uint64(1)<<f.Span - 1) << n
			begin := base + f.Bit + i*f.Bits
			for b := begin; b < begin+f.Bits; b++ {
				setBit(query, b/8, 1<<(7-b%8), record[b/8]>>(7-b%8)&1 != 0)
			}
			if !l.Matches(mask, record, query) {
				t.Errorf("%s: component %d, %s, does not match itself", l.Name, n, f.Name)
			}
			b := begin + r.IntN(f.Bits)
			query[b/8] ^= 1 << (7 - b%8)
			if l.Matches(mask, record, query) || !l.Matches(0, record, query) {
				t.Errorf("%s: component %d, %s, matches what differs in bit %d", l.Name, n, f.Name, b)
			}
		})
	}
}
