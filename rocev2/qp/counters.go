package qp

// Counters count what the QPs of a worker met, under the names of rxe's
// hw_counters where it has one. The worker owns them.
type Counters struct {
	DuplicateRequest  uint64 // duplicate_request: requests seen before
	OutOfSeqRequest   uint64 // out_of_seq_request: requests ahead of the expected PSN
	RcvdRNRErr        uint64 // rcvd_rnr_err: RNR NAKs received
	SendRNRErr        uint64 // send_rnr_err: RNR NAKs sent
	RcvdSeqErr        uint64 // rcvd_seq_err: sequence NAKs received
	ImpliedNAK        uint64 // READ or atomic responses found missing
	Timeouts          uint64 // local ACK timeouts
	Probes            uint64 // questions asked before the local ACK timeout, as an answer was overdue
	AckDeferred       uint64 // ack_deferred: acknowledgements merged into a later one
	RetryExceeded     uint64 // retry_exceeded_err
	RNRRetryExceeded  uint64 // retry_rnr_exceeded_err
	LocalErrors       uint64 // send_err: requests that failed before they were sent
	NAKInvalidRequest uint64 // NAK 0x61 sent
	NAKRemoteAccess   uint64 // NAK 0x62 sent
	NAKRemoteOp       uint64 // NAK 0x63 sent
	NAKSequence       uint64 // NAK 0x60 sent
	RDMASends         uint64 // rdma_sends: SEND messages completed as requester
	RDMARecvs         uint64 // rdma_recvs: SEND messages received
	DroppedMessages   uint64 // messages of UC of which something came, given up
	Unsent            uint64 // of UC and UD: lost, as their next hop didn't become known, or longer than a datagram may be
	ReadReplays       uint64 // duplicate READs answered again
	AtomicReplays     uint64 // duplicate atomics answered from saved results
}

// Add adds o to c.
func (c *Counters) Add(o *Counters) {
	c.DuplicateRequest += o.DuplicateRequest
	c.OutOfSeqRequest += o.OutOfSeqRequest
	c.RcvdRNRErr += o.RcvdRNRErr
	c.SendRNRErr += o.SendRNRErr
	c.RcvdSeqErr += o.RcvdSeqErr
	c.ImpliedNAK += o.ImpliedNAK
	c.Timeouts += o.Timeouts
	c.Probes += o.Probes
	c.AckDeferred += o.AckDeferred
	c.RetryExceeded += o.RetryExceeded
	c.RNRRetryExceeded += o.RNRRetryExceeded
	c.LocalErrors += o.LocalErrors
	c.NAKInvalidRequest += o.NAKInvalidRequest
	c.NAKRemoteAccess += o.NAKRemoteAccess
	c.NAKRemoteOp += o.NAKRemoteOp
	c.NAKSequence += o.NAKSequence
	c.RDMASends += o.RDMASends
	c.RDMARecvs += o.RDMARecvs
	c.DroppedMessages += o.DroppedMessages
	c.Unsent += o.Unsent
	c.ReadReplays += o.ReadReplays
	c.AtomicReplays += o.AtomicReplays
}
