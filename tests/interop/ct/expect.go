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
	"mw1": window,
	"mw2": window,
	"uc_lost": {
		server: [2]string{"recv: status 2\n\tbuf 18587850", "recv: status 0 opcode 128 len 1400\n\tbuf d50d8544"},
		why:    tooLongIsLost,
	},
}

const tooLongIsLost = "a message of UC or UD that is longer than its receive is dropped, and the receive takes the next one " +
	"(IBA 9.8.2.2, 9.8.3.2; linux-rdma 20240523); rxe completes it with LOC_QP_OP_ERR"

var window = deviation{
	server: [2]string{"buf b66a516c", "buf c2edaf80"},
	client: [2]string{"op 0 len 64: status 0 opcode 1", "op 0 len 64: status 10"},
	why:    "what is outside of a window gets NAK 0x62 (IBA 10.6.7); rxe looks at the range of the region that it is bound to",
}

var longSend = deviation{
	server: [2]string{"recv: status 2", "recv: status 1"},
	client: [2]string{"status 11", "status 9"},
	why: "a SEND longer than its receive gets NAK 0x61 and completes with LOC_LEN_ERR at the receiver (IBA 9.7.4.1); " +
		"rxe sends 0x63 and completes with LOC_QP_OP_ERR",
}

// ofClient are where urxe is the client, and its verbs do what rdma-core's don't.
var ofClient = map[string]deviation{
	"atomic_write_align": {
		client: [2]string{"atomic_write: status 9", "atomic_write: refused"},
		why:    "an atomic must be to a multiple of 8 (IBA 9.4.5, Annex A19): a work request that isn't is not taken",
	},
}

// ExpectOfClient returns what a test prints when urxe is the client.
func ExpectOfClient(golden, test string) string { return ofClient[test].apply(golden) }

// ofRxe61 are where rxe of Linux 6.1 does what later ones don't.
var ofRxe61 = map[string]deviation{
	"ud_lost": {
		server: [2]string{"recv: status 0 opcode 128 len 100\n\tgrh ok\n\tbuf 6ae0e79f", "recv: status 2\n\tgrh ok\n\tbuf 1c06a110"},
		why:    tooLongIsLost,
	},
}

// ExpectOfRxe61 returns what a test prints when rxe of Linux 6.1 is the server.
func ExpectOfRxe61(golden, test string) string { return ofRxe61[test].apply(golden) }

// Expect returns what a test must print when urxe is the server, given what it
// prints when rxe is: the deviations are applied.
func Expect(golden, test string) string {
	return deviations[test].apply(golden)
}

func (d deviation) apply(golden string) string {
	for _, r := range [][2]string{d.server, d.client} {
		if r[0] != "" {
			golden = strings.Replace(golden, r[0], r[1], 1)
		}
	}
	return golden
}
