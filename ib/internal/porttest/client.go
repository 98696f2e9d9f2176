package porttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
)

// Query checks that a mad.Client at p gets a table whole from the subnet
// administration at a LID, which ServeTable is there, several at a time, and
// that of errors it says what they are.
func Query(t *testing.T, p mad.Port, sa ib.LID, stride int, table []byte) {
	t.Helper()
	c := mad.NewClient(p, mad.ClientOptions{Timeout: 300 * time.Millisecond, Retries: 30})
	ask := func(method mad.Method) (mad.Message, error) {
		q := &mad.Packet{Addr: mad.Addr{LID: sa, QPN: 1}}
		q.MAD().InitSA(method, mad.AttrNodeRecord, 0)
		return c.Do(t.Context(), q)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				m, err := ask(mad.MethodGetTable)
				if err != nil || !bytes.Equal(m.Bytes, table) || len(m.Records()) != len(table)/stride {
					t.Errorf("%d of %d bytes came, %d records, %v", len(m.Bytes), len(table), len(m.Records()), err)
				}
			}
		})
	}
	wg.Wait()
	var bad *mad.StatusError
	if _, err := ask(mad.MethodGet); !errors.As(err, &bad) || bad.Status != mad.StatusSARequestInvalid {
		t.Errorf("a Get: %v", err)
	}
	q := &mad.Packet{Addr: mad.Addr{LID: 0xbfff, QPN: 1}, Timeout: time.Millisecond}
	q.MAD().InitSA(mad.MethodGet, mad.AttrNodeRecord, 0)
	if _, err := c.Do(t.Context(), q); !errors.Is(err, mad.ErrTimeout) {
		t.Errorf("to nobody: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q.Timeout = time.Hour
	if _, err := c.Do(ctx, q); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := ask(mad.MethodGet); !errors.Is(err, mad.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// Table returns a table of n records of stride bytes.
func Table(n, stride int) []byte {
	var b []byte
	for i := range n {
		r := make([]byte, stride)
		copy(r, fmt.Sprintf("record %d", i))
		b = append(b, r...)
	}
	return b
}
