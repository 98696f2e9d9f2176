package capture

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Reader reads a capture, packet by packet.
//
// It is ours, and not gopacket's pcapgo, which cannot say where a file is
// damaged and takes blocks whose two lengths differ.
type Reader struct {
	r       *bufio.Reader
	close   func() error
	off     int64 // bytes read
	start   int64 // where the record or block being read begins
	packets int
	order   binary.ByteOrder
	buf     []byte
	next    func() (*Packet, error) // of pcap or of pcapng
	pkt     Packet

	unit       time.Duration // pcap: of the fraction of a second
	interfaces []iface       // pcapng: of the section
}

// Open opens a capture file. Close the Reader after use.
func Open(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r, err := NewReader(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r.close = f.Close
	return r, nil
}

// NewReader reads the header of a capture. Which format it has, it finds out.
func NewReader(from io.Reader) (*Reader, error) {
	r := &Reader{r: bufio.NewReaderSize(from, 64<<10), close: func() error { return nil }}
	magic, err := r.r.Peek(4)
	switch {
	case err == io.EOF && len(magic) == 0:
		return nil, errors.New("capture is empty: not even a file header")
	case err == io.EOF:
		return nil, fmt.Errorf("capture ends after %d bytes, inside its file header", len(magic))
	case err != nil:
		return nil, err
	}
	switch m := be.Uint32(magic); {
	case m == blockSection:
		r.next = r.nextBlockPacket
		return r, r.readSection()
	case magic[0] == 0x1f && magic[1] == 0x8b:
		return nil, errors.New("capture is compressed by gzip: unpack it first")
	default:
		r.next = r.nextRecord
		return r, r.readFileHeader(m)
	}
}

// Next returns the next packet, valid until the next call. At the end of the
// capture the error is io.EOF; when the rest cannot be read it is a
// *DamageError, a *LinkTypeError or that of the source.
func (r *Reader) Next() (*Packet, error) {
	p, err := r.next()
	if err == nil {
		r.packets++
	}
	return p, err
}

// Buffered returns the bytes that can be read without waiting for the source.
func (r *Reader) Buffered() int { return r.r.Buffered() }

// Close closes the file that Open opened.
func (r *Reader) Close() error { return r.close() }

var be = binary.BigEndian

// read returns the next n bytes, valid until the next read. At the end of the
// source the error is io.EOF when it ends here, and a DamageError when it
// ends inside of them. The buffer grows as the bytes come: a length in a
// damaged file is not to be believed.
func (r *Reader) read(n int) ([]byte, error) {
	if cap(r.buf) < n && n <= 64<<10 {
		r.buf = make([]byte, 64<<10)
	}
	var got int
	var err error
	if n <= cap(r.buf) {
		r.buf = r.buf[:n]
		got, err = io.ReadFull(r.r, r.buf)
	} else {
		var b bytes.Buffer
		var m int64
		m, err = io.CopyN(&b, r.r, int64(n))
		got, r.buf = int(m), b.Bytes()
	}
	r.off += int64(got)
	switch {
	case err == io.EOF && got == 0:
		return nil, io.EOF
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return nil, r.damage("the file ends %d bytes into something %d bytes long", got, n)
	}
	return r.buf, err
}

// inside turns the end of the source into damage: more bytes were due.
func (r *Reader) inside(err error) error {
	if err == io.EOF {
		return r.damage("the file ends in the middle of it")
	}
	return err
}

func (r *Reader) damage(format string, args ...any) error {
	return &DamageError{Offset: r.start, Packets: r.packets, Reason: fmt.Sprintf(format, args...)}
}
