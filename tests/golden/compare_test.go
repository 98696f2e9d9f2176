package golden

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/urxe/urxe/rocev2/wire"
)

// differences compares the answers of rxe with ours, and says what is
// different how often. It leaves out what differs by the leave of the
// specification: the migration state, which rxe has wrong (IBA 9.2.5: a QP that
// doesn't migrate sends 1); credits, which may be given or not (IBA 9.7.7.2); and the
// IP identification, which says nothing of a packet that is never fragmented
// (RFC 6864).
func differences(theirs, ours []*packet) map[string]int {
	a, b := contents(theirs), contents(ours)
	found := map[string]int{}
	i, j := 0, 0
	for _, c := range append(longestCommon(a, b), [2]int{len(a), len(b)}) {
		if c[0] > i || c[1] > j {
			found[fmt.Sprintf("rxe %s; urxe %s", kinds(theirs[i:c[0]]), kinds(ours[j:c[1]]))]++
		}
		if c[0] < len(a) {
			diffFlow(found, theirs[c[0]], ours[c[1]])
		}
		i, j = c[0]+1, c[1]+1
	}
	return found
}

// contents has a string for each packet, of all from the BTH on that must agree.
func contents(packets []*packet) (list []string) {
	for _, p := range packets {
		h := p.Header
		h.MigReq = true
		if h.Syndrome.IsAck() {
			h.Syndrome = wire.SyndromeAck
		}
		list = append(list, fmt.Sprintf("%+v %x", h, p.payload))
	}
	return list
}

// kinds names packets without their numbers.
func kinds(packets []*packet) string {
	var names []string
	for _, p := range packets {
		name := fmt.Sprintf("%v of %d bytes", p.Opcode, len(p.payload))
		if p.Opcode == wire.RCAck {
			name = p.Syndrome.String()
		}
		names = append(names, name)
	}
	if names == nil {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// diffFlow says where the headers below the BTH differ.
func diffFlow(found map[string]int, theirs, ours *packet) {
	a, b := reflect.ValueOf(theirs.flow), reflect.ValueOf(ours.flow)
	for i := range a.NumField() {
		name := a.Type().Field(i).Name
		if x, y := a.Field(i).Interface(), b.Field(i).Interface(); x != y && name != "IPID" {
			found[fmt.Sprintf("rxe %s %#x; urxe %#x", name, x, y)]++
		}
	}
}

// longestCommon returns the indices of a longest common subsequence.
func longestCommon(a, b []string) (pairs [][2]int) {
	n := make([][]int, len(a)+1)
	for i := range n {
		n[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			n[i][j] = max(n[i+1][j], n[i][j+1])
			if a[i] == b[j] {
				n[i][j] = n[i+1][j+1] + 1
			}
		}
	}
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			pairs = append(pairs, [2]int{i, j})
			i, j = i+1, j+1
		case n[i+1][j] >= n[i][j+1]:
			i++
		default:
			j++
		}
	}
	return pairs
}
