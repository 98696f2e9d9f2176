package mem

// Process is another process's memory.
type Process struct{}
