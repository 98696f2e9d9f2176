//go:build race

package mem

import "sync"

// The race detector can't know that a program which reads memory while a peer
// writes it waits for the last byte, and that this one lands last. So when it
// runs, local ops and the accessors of such memory exclude one another: who uses
// the accessors is found clean, and who reads the memory bare is found racing.
var raceMu sync.Mutex

func raceLock()   { raceMu.Lock() }
func raceUnlock() { raceMu.Unlock() }
