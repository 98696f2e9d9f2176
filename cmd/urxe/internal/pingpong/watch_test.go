package pingpong

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// How a game ends whose peer closes its connection at a second, and lets messages come each second until another one.
func TestWatch(t *testing.T) {
	const never = 1000
	for what, c := range map[string]struct {
		closes, silent int
		ends, told     int // when, and how often
	}{
		"an ibv_*_pingpong in a game of 60 s":   {0, 60, never, 1},
		"one that never begins":                 {0, 0, never, 1},
		"urxe, killed after 5 s":                {5, 5, 7, 0},
		"urxe, whose last messages take longer": {5, 20, 22, 0},
		"urxe that plays":                       {never, never, never, 0},
		"urxe that stands still":                {never, 3, never, 1},
		"urxe that is killed when it did":       {20, 3, 21, 1},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				defer near.Close()
				defer far.Close()
				var notes strings.Builder
				g := &game{o: Options{Notes: &notes}, conn: near}
				ctx, end := context.WithCancelCause(t.Context())
				watched := make(chan struct{})
				go func() { g.watch(ctx, end); close(watched) }()
				second := 0
				for ; second < 100 && ctx.Err() == nil; second++ {
					if second == c.closes {
						far.Close()
					}
					if second < c.silent {
						g.moves.Add(1)
					}
					time.Sleep(time.Second)
					synctest.Wait()
				}
				end(nil)
				<-watched
				if got := context.Cause(ctx); (c.ends < never) != errors.Is(got, errGone) {
					t.Errorf("ended by %v", got)
				}
				if c.ends < never && second != c.ends {
					t.Errorf("ended after %d s, want %d", second, c.ends)
				}
				if n := strings.Count(notes.String(), "nothing has come"); n != c.told {
					t.Errorf("the user was told %d times, want %d: %s", n, c.told, notes.String())
				}
			})
		})
	}
}
