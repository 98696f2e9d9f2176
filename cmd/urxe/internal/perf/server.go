package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/urxe/urxe/cmd/urxe/internal/bench"
	"github.com/urxe/urxe/cmd/urxe/internal/rig"
	"github.com/urxe/urxe/verbs"
)

// serve runs the passive part of the tests of one client.
func serve(ctx context.Context, d *verbs.Device, o Options) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", fmt.Sprintf(":%d", o.Port))
	if err != nil {
		return fmt.Errorf("listen for a client: %w", err)
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	c, err := l.Accept()
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	defer c.Close()
	defer closeWith(ctx, c)()
	s := &server{d, o, newTalk(c)}
	for {
		err := s.round(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			_ = s.say(message{Error: err.Error()}) // the peer may be gone
			return err
		}
	}
}

type server struct {
	dev *verbs.Device
	o   Options
	*talk
}

// round runs the test that the client asks for next.
func (s *server) round(ctx context.Context) (err error) {
	m, err := s.hear()
	if err != nil {
		return err
	}
	if m.Test == nil || m.Address == nil || len(m.Address.QPs) == 0 {
		return errors.New("the client's message has no test")
	}
	if err := m.Test.Check(); err != nil {
		return err
	}
	if err := rig.CheckMTU(s.dev, m.Test.MTU); err != nil {
		return err
	}
	gid, err := rig.PickGID(s.dev, s.o.GID, m.Address.QPs[0].GID)
	if err != nil {
		return err
	}
	side, err := m.Test.side(s.dev, s.o.PKeyIndex)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, side.Close()) }()
	if err := m.Test.connect(side, *m.Address, gid); err != nil {
		return err
	}
	local, err := side.Address(gid)
	if err != nil {
		return err
	}
	if err := s.say(message{Address: &local}); err != nil {
		return err
	}
	if err := s.passive(ctx, side, m); err != nil {
		return err
	}
	return s.say(message{Done: true})
}

// passive runs until the client says that it is done.
func (s *server) passive(ctx context.Context, side *rig.Side, m message) error {
	ctx, last := s.listen(ctx)
	var err error
	if m.Test.Mode == Latency {
		err = bench.Pong(ctx, side, *m.Address, m.Test.job())
	} else {
		err = bench.Receive(ctx, side, m.Test.job())
	}
	if err != nil {
		return err // the goroutine ends with the connection
	}
	return <-last
}
