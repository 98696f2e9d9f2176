package ct

import (
	"fmt"
	"path/filepath"
	"strings"
)

// GoldenFile names the file, below tests/interop, that says what both ends
// print when both are rxe. It depends on the path MTU where the sizes do.
func GoldenFile(test string, pathMTU int) string {
	if strings.HasPrefix(test, "sizes") {
		test = fmt.Sprintf("%s_%d", test, pathMTU)
	}
	return filepath.Join("testdata", "ct", test+".txt")
}

// Join puts the output of both ends together, as a golden file has it.
func Join(server, client string) string {
	return "server\n" + indent(server) + "client\n" + indent(client)
}

func indent(s string) (out string) {
	for line := range strings.Lines(s) {
		out += "\t" + line
	}
	return out
}

// deviation is a result that urxe gives as a server where rxe gives another.
type deviation struct {
	server, client [2]string // rxe's, urxe's
	why            string
}

// deviations are where urxe follows the specification and rxe does not.
var deviations = map[string]deviation{
	"nak_send_long":       longSend,
	"nak_send_long_multi": longSend,
	"nak_op": {
		server: [2]string{"recv: status 2", "recv: status 4"},
		why:    "a receive whose local key or range is bad completes with LOC_PROT_ERR, not LOC_QP_OP_ERR (IBA 11.6.2)",
	},
}

var longSend = deviation{
	server: [2]string{"recv: status 2", "recv: status 1"},
	client: [2]string{"status 11", "status 9"},
	why: "a SEND longer than its receive gets NAK 0x61 and completes with LOC_LEN_ERR at the receiver (IBA 9.7.4.1); " +
		"rxe sends 0x63 and completes with LOC_QP_OP_ERR",
}

// Expect returns what a test must print when urxe is the server, given what it
// prints when rxe is: the deviations are applied.
func Expect(golden, test string) string {
	d, ok := deviations[test]
	if !ok {
		return golden
	}
	for _, r := range [][2]string{d.server, d.client} {
		if r[0] != "" {
			golden = strings.Replace(golden, r[0], r[1], 1)
		}
	}
	return golden
}
