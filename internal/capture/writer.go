package capture

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"
)

// nanoseconds is the if_tsresol of all interfaces: units of 10^-9 s.
const nanoseconds = 9

var le = binary.LittleEndian

// Writer writes a pcapng stream: one section, an interface block for each
// interface, an enhanced packet block for each packet. Workers may share one.
//
// Write buffers; Flush after each batch makes the stream a live one, such as
// `urxe capture eth0 | wireshark -k -i -` needs. After an error of the
// destination, all calls return it.
type Writer struct {
	mu         sync.Mutex
	w          *bufio.Writer
	interfaces int
	scratch    [64]byte
}

// NewWriter begins a stream on w, and flushes its header.
func NewWriter(w io.Writer) (*Writer, error) {
	c := &Writer{w: bufio.NewWriterSize(w, 64<<10)}
	app := "urxe"
	c.begin(blockSection, 16+optionLen(app)+4)
	c.u32(byteOrderMagic)
	c.u16(1) // version 1.0
	c.u16(0)
	c.u64(^uint64(0)) // section length: not known
	c.option(optUserAppl, app)
	c.u32(optEnd)
	c.end(16 + optionLen(app) + 4)
	return c, c.w.Flush()
}

// AddInterface declares an interface, and returns its number for Write.
func (c *Writer) AddInterface(name string) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name = name[:min(len(name), maxOptionLen)]
	n := 8 + optionLen(name) + 8 + 4
	c.begin(blockInterface, n)
	c.u16(linkTypeEthernet)
	c.u16(0)
	c.u32(0) // no snapshot length
	c.option(optIfName, name)
	c.u16(optTsResol)
	c.u16(1)
	c.u32(nanoseconds)
	c.u32(optEnd)
	c.end(n)
	c.interfaces++
	return c.interfaces - 1, c.w.Flush()
}

// Write adds a frame, in one or two pieces, that interface number iface
// received or sent at the time at. It had length bytes: frame may be the beginning
// of it. comment may be empty.
func (c *Writer) Write(iface int, at time.Time, dir Direction, frame [2][]byte, length int, comment string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if iface < 0 || iface >= c.interfaces {
		return fmt.Errorf("capture: interface %d is not declared: there are %d", iface, c.interfaces)
	}
	comment = comment[:min(len(comment), maxOptionLen)]
	size := len(frame[0]) + len(frame[1])
	n := 20 + size + pad4(size) + optionLen(comment) + 8 + 4
	c.begin(blockEnhanced, n)
	c.u32(uint32(iface))
	ns := uint64(at.UnixNano())
	c.u32(uint32(ns >> 32))
	c.u32(uint32(ns))
	c.u32(uint32(size))
	c.u32(uint32(max(length, size)))
	c.w.Write(frame[0])
	c.w.Write(frame[1])
	c.zero(pad4(size))
	c.option(optComment, comment)
	c.u16(optFlags)
	c.u16(4)
	c.u32(uint32(dir))
	c.u32(optEnd)
	return c.end(n)
}

// Flush hands all that was written to the destination.
func (c *Writer) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.w.Flush()
}

// begin starts a block with a body of n bytes; end ends it.
func (c *Writer) begin(kind uint32, n int) {
	c.u32(kind)
	c.u32(uint32(n + 12))
}

func (c *Writer) end(n int) error {
	c.u32(uint32(n + 12))
	_, err := c.w.Write(nil) // the first error of all
	return err
}

// optionLen returns the bytes of an option with value v: none when it is empty.
func optionLen(v string) int {
	if v == "" {
		return 0
	}
	return 4 + len(v) + pad4(len(v))
}

func (c *Writer) option(code uint16, v string) {
	if v == "" {
		return
	}
	c.u16(code)
	c.u16(uint16(len(v)))
	c.w.WriteString(v)
	c.zero(pad4(len(v)))
}

// The bufio.Writer keeps its first error, and end returns it.

func (c *Writer) u16(v uint16) { c.w.Write(le.AppendUint16(c.scratch[:0], v)) }
func (c *Writer) u32(v uint32) { c.w.Write(le.AppendUint32(c.scratch[:0], v)) }
func (c *Writer) u64(v uint64) { c.w.Write(le.AppendUint64(c.scratch[:0], v)) }
func (c *Writer) zero(n int)   { c.w.WriteString("\x00\x00\x00"[:n]) }
