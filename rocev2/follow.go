package rocev2

import "time"

// OnChange sets the function that is called after addresses, routes, neighbours
// or the link changed and paths have followed. It runs on a goroutine of the
// Port, which must not be closed within it, and delays the next change while it
// does. It is called for the first time soon after OnChange: something may have
// changed just before.
func (p *Port) OnChange(f func()) {
	p.onChange.Store(&f)
	p.noteChange()
}

// noteChange is called by Net, on any goroutine.
func (p *Port) noteChange() {
	select {
	case p.changed <- struct{}{}:
	default: // it is noted already
	}
}

// follow lets the QPs follow changes of the network, and asks again for next
// hops that aren't known.
func (p *Port) follow() {
	defer close(p.stopped)
	retry := time.NewTicker(retryResolve)
	defer retry.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-p.changed:
			p.refresh()
			if f := p.onChange.Load(); f != nil {
				(*f)()
			}
			p.pause()
		case <-retry.C:
			if p.parked.Load() {
				p.refresh()
			}
		}
	}
}

// pause keeps a storm of changes, such as of routes, from taking all the time.
func (p *Port) pause() {
	select {
	case <-p.stop:
	case <-time.After(changePause):
	}
}

// refreshIfChanged is follow for Manual ports.
func (p *Port) refreshIfChanged() {
	select {
	case <-p.changed:
		p.refresh()
	default:
	}
}
