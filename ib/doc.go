// Package ib is the vocabulary of InfiniBand and RoCE: the identifiers, keys,
// sequence numbers and enumerations that every other package speaks in. Names
// and values are those of the InfiniBand Architecture (IBA) and of ibverbs.
//
// It imports nothing of this module.
package ib
