package daemon

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/sm"
)

const (
	// progressAfter is how long a sweep runs before its progress is worth a line.
	progressAfter = time.Second
	progressEvery = 250 * time.Millisecond
)

// watch shows on a terminal how far a long sweep is.
func (d *daemon) watch(ctx context.Context) {
	if st, err := os.Stderr.Stat(); err != nil || st.Mode()&os.ModeCharDevice == 0 {
		return
	}
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	var since time.Duration
	shown := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var p sm.Progress
		if d.runner.Do(ctx, func(m *sm.Manager, _ clock.Time) { p = m.Progress() }) != nil {
			return
		}
		if since += progressEvery; p.Idle {
			since = 0
		}
		shown = show(os.Stderr, p, since > progressAfter, shown)
	}
}

// show writes the progress over the line before, or wipes that out.
func show(w io.Writer, p sm.Progress, on, shown bool) bool {
	switch {
	case on:
		fmt.Fprintf(w, "\r%-12s %6d nodes  %8d MADs sent  %6d lost  %7d to go\x1b[K", p.Phase, p.Nodes, p.Sent, p.Lost, p.Queued+p.UnderWay)
	case shown:
		fmt.Fprint(w, "\r\x1b[K")
	}
	return on
}
