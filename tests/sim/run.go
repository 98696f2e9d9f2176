package sim

import (
	"fmt"
	"strings"
)

// Result is what a run did.
type Result struct {
	Posts   int // work requests posted
	Packets int // packets sent
	QPs     int
}

// Run runs the simulation of a seed. The error lists all that went wrong.
func Run(seed uint64, c *Coverage) (res Result, err error) {
	w, err := newWorld(seed, c)
	if err != nil {
		return res, fmt.Errorf("seed %d: set-up: %w", seed, err)
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("seed %d: panic: %v", seed, p)
			if len(w.net.errs) == 0 {
				panic(p)
			}
		}
	}()
	w.run()
	for _, h := range w.hosts {
		h.check(w)
		h.pool.check()
		c.collect(h.port)
	}
	w.close()
	res = Result{Posts: w.posts, Packets: w.net.sent, QPs: 2*len(w.pairs) + len(w.talkers)}
	if len(w.net.errs) > 0 {
		n := min(len(w.net.errs), 5)
		return res, fmt.Errorf("seed %d: %d violations:\n%s", seed, len(w.net.errs), strings.Join(w.net.errs[:n], "\n"))
	}
	return res, nil
}
