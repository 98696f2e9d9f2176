// Package umad sends and receives management datagrams through the ports of
// this host's adapters, by Linux's /dev/infiniband/umad* (ABI version 5,
// kernel documentation infiniband/user_mad).
//
// A Port registers an agent for each class that it speaks. The kernel matches
// answers with requests by the high half of the TID, which it sets itself,
// repeats requests, and returns the ones that stay unanswered. RMPP is left to
// the caller (mad.RMPP), so that all kinds of mad.Port behave the same.
package umad
