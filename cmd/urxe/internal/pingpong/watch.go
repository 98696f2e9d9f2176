package pingpong

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Who waits for the peer's turn sends nothing that could fail, so that the game of a peer that was killed would never end.
// Its connection tells: urxe has it until the game is over. An ibv_*_pingpong closes it as the game begins, and then only
// the user can know what silence means. In seconds:
const (
	begun     = 1  // when an ibv_*_pingpong has closed its connection
	lastWords = 2  // in which what the peer sent before its end has come
	silence   = 10 // of which the user is told
)

var errGone = errors.New("the peer has gone")

// watch ends the game when the peer has gone, and tells the user of silence.
func (g *game) watch(ctx context.Context, end func(error)) {
	closed := whenClosed(g.conn)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last, idle := g.moves.Load(), 0
	for second := 1; ; second++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		idle++
		if now := g.moves.Load(); now != last {
			last, idle = now, 0
		}
		gone := isClosed(closed)
		switch {
		case gone && second == begun:
			closed = nil
		case gone && idle >= lastWords:
			end(errGone)
			return
		case idle == silence:
			fmt.Fprintf(g.o.Notes, "nothing has come from the peer for %d s: it may have ended, or a message that isn't sent again was lost\n", silence)
		}
	}
}

// whenClosed returns a channel that is closed when the peer has closed its end, or c is closed.
func whenClosed(c net.Conn) <-chan struct{} {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, c)
	}()
	return closed
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
