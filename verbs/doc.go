// Package verbs is RDMA for Go programs: the objects and operations of ibverbs over a RoCEv2 transport in user space.
package verbs
