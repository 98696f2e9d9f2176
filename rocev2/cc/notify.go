package cc

import "github.com/urxe/urxe/internal/clock"

// Notifier is the notification point of a QP. The zero value is ready.
type Notifier struct {
	next clock.Time // before it no CNP is sent
}

// Marked takes a packet of the QP's peer that came with CE at the time now, and
// reports whether a CNP must be sent: at once, and then at most one in a
// CNPInterval (the paper's 3.2; Annex A17.9.3).
func (n *Notifier) Marked(now clock.Time, p *Params) bool {
	if now < n.next {
		return false
	}
	n.next = now.Add(p.CNPInterval)
	return true
}
