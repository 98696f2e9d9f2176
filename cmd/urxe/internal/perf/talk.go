package perf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/urxe/urxe/cmd/urxe/internal/rig"
)

// What client and server say to each other: lines of JSON.
//
//	client → server   test and its side's address
//	server → client   its side's address, or why not; it runs the passive part from now on
//	client → server   done: the active part is over
//	server → client   done: its side is gone
//
// and again for the next size, until the client closes the connection.
type message struct {
	Version int          `json:"version"`
	Test    *Test        `json:"test,omitempty"`
	Address *rig.Address `json:"address,omitempty"`
	Error   string       `json:"error,omitempty"`
	Done    bool         `json:"done,omitempty"`
}

const version = 1

// talk is a connection with the other side.
type talk struct {
	limit *io.LimitedReader
	in    *json.Decoder
	out   *json.Encoder
}

// longestMessage bounds what the peer may have us keep: the addresses of all QPs fit.
const longestMessage = 1 << 20

func newTalk(c net.Conn) *talk {
	l := &io.LimitedReader{R: c}
	return &talk{l, json.NewDecoder(l), json.NewEncoder(c)}
}

func (t *talk) say(m message) error {
	m.Version = version
	if err := t.out.Encode(m); err != nil {
		return fmt.Errorf("tell the peer: %w", err)
	}
	return nil
}

// hear returns the peer's next message; io.EOF when it closed the connection.
func (t *talk) hear() (m message, err error) {
	t.limit.N = longestMessage
	if err := t.in.Decode(&m); err != nil {
		if errors.Is(err, io.EOF) {
			return m, io.EOF
		}
		return m, fmt.Errorf("listen to the peer (is it urxe perf?): %w", err)
	}
	switch {
	case m.Version != version:
		return m, fmt.Errorf("the peer speaks version %d of urxe perf's protocol, this one %d", m.Version, version)
	case m.Error != "":
		return m, fmt.Errorf("the peer says: %s", m.Error)
	}
	return m, nil
}

// listen hears the peer's next message, its last word on the test that runs, and ends the returned context then. The goroutine
// ends with the connection at the latest.
func (t *talk) listen(ctx context.Context) (during context.Context, last <-chan error) {
	during, end := context.WithCancelCause(ctx)
	heard := make(chan error, 1)
	go func() {
		m, err := t.hear()
		switch {
		case err == nil && !m.Done:
			err = errors.New("the peer said something else than done")
		case errors.Is(err, io.EOF):
			err = errors.New("the peer went away in the middle of a test")
		}
		heard <- err
		end(err)
	}()
	return during, heard
}
