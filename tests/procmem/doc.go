// Package procmem runs whole Ports on the memory of another process, as the
// daemon does, and takes that memory away in the middle of bursts: by unmapping
// pages, and by killing the process.
package procmem
