package qp

import "fmt"

// String names the operation as ibverbs does, without its prefix.
func (o WROpcode) String() string {
	if o.Valid() {
		return o.operation().name
	}
	return fmt.Sprintf("invalid opcode (%d)", uint8(o))
}

var statusNames = [...]string{
	"success", "local length error", "local QP operation error", "local EE context operation error",
	"local protection error", "work request flushed", "memory window bind error", "bad response",
	"local access error", "remote invalid request", "remote access error", "remote operation error",
	"transport retry counter exceeded", "RNR retry counter exceeded", "local RDD violation",
	"remote invalid RD request", "remote aborted", "invalid EE context number", "invalid EE context state",
	"fatal error", "response timeout", "general error",
}

func (s WCStatus) String() string { return nameOf(statusNames[:], int(s), "invalid status") }

var wcNames = map[WCOpcode]string{
	WCSend: "SEND", WCWrite: "WRITE", WCRead: "READ", WCCompareSwap: "CMP_SWAP", WCFetchAdd: "FETCH_ADD",
	WCBindMW: "BIND_MW", WCLocalInv: "LOCAL_INV", WCFlush: "FLUSH", WCAtomicWrite: "ATOMIC_WRITE", WCRegMR: "REG_MR",
	WCRecv: "RECV", WCRecvWriteImm: "RECV_WRITE_IMM",
}

func (o WCOpcode) String() string {
	if n, ok := wcNames[o]; ok {
		return n
	}
	return fmt.Sprintf("invalid opcode (%d)", uint8(o))
}

var eventNames = [...]string{
	EventQPFatal: "QP_FATAL", EventQPReqErr: "QP_REQ_ERR", EventQPAccessErr: "QP_ACCESS_ERR",
	EventCommEst: "COMM_EST", EventSQDrained: "SQ_DRAINED", EventLastWQEReached: "LAST_WQE_REACHED",
}

func (e Event) String() string { return nameOf(eventNames[:], int(e), "invalid event") }

func nameOf(names []string, i int, invalid string) string {
	if i < len(names) && names[i] != "" {
		return names[i]
	}
	return fmt.Sprintf("%s (%d)", invalid, i)
}
