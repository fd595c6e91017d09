package sidecar_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"millrace"
	"millrace/sidecar"
	"millrace/sidecar/sidecartest"
)

// These are the numbers of docs/protocol.md, repeated here so that a change of the protocol fails a test.
const (
	hello, begin, ringMsg, batchMsg, release, commit, saved = 1, 2, 3, 4, 5, 6, 7
	end, errorMsg, wait, status, alerts, leaving            = 8, 9, 10, 11, 12, 13
	magic                                                   = 0x434c494d
)

// msg is a message as it is on the wire.
type msg struct {
	kind                     uint16
	flags                    uint32
	attempt                  uint32
	step                     uint64
	microbatch, microbatches uint32
	ring, frame              uint32
	generation               uint64
	rank                     uint32
	body                     []byte
}

func (m msg) bytes() []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, magic)
	b = le.AppendUint16(b, 1)
	b = le.AppendUint16(b, m.kind)
	b = le.AppendUint32(b, m.flags)
	b = le.AppendUint32(b, m.attempt)
	b = le.AppendUint64(b, 0)
	b = le.AppendUint64(b, m.step)
	b = le.AppendUint32(b, m.microbatch)
	b = le.AppendUint32(b, m.microbatches)
	b = le.AppendUint32(b, m.ring)
	b = le.AppendUint32(b, m.frame)
	b = le.AppendUint64(b, m.generation)
	b = le.AppendUint32(b, m.rank)
	b = le.AppendUint32(b, uint32(len(m.body)))
	return append(b, m.body...)
}

// client is a trainer that builds each message by hand.
type client struct {
	t     *testing.T
	conn  *net.UnixConn
	rings map[uint32][]byte
	fds   map[uint32]int
}

func dial(t *testing.T, path string) *client {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	cl := &client{t: t, conn: c, rings: map[uint32][]byte{}, fds: map[uint32]int{}}
	t.Cleanup(cl.close)
	return cl
}

func (c *client) close() {
	_ = c.conn.Close()
	for n, b := range c.rings {
		_ = unix.Munmap(b)
		_ = unix.Close(c.fds[n])
		delete(c.rings, n)
	}
}

func (c *client) send(m msg) {
	c.t.Helper()
	if _, err := c.conn.Write(m.bytes()); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) hello(start string, more map[string]any) {
	c.t.Helper()
	fields := map[string]any{"start": start}
	for k, v := range more {
		fields[k] = v
	}
	body, err := json.Marshal(fields)
	if err != nil {
		c.t.Fatal(err)
	}
	c.send(msg{kind: hello, rank: ^uint32(0), body: body})
}

// next reads the next message and maps rings that come before it. Kind 0 is the end of the connection.
func (c *client) next() msg {
	c.t.Helper()
	buf, oob := make([]byte, 1<<17), make([]byte, 64)
	for {
		if err := c.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			c.t.Fatal(err)
		}
		n, oobn, _, _, err := c.conn.ReadMsgUnix(buf, oob)
		if n == 0 {
			if os.IsTimeout(err) {
				c.t.Fatal("nothing came in a minute")
			}
			return msg{}
		}
		le := binary.LittleEndian
		m := msg{
			kind: le.Uint16(buf[6:]), flags: le.Uint32(buf[8:]), attempt: le.Uint32(buf[12:]),
			step: le.Uint64(buf[24:]), microbatch: le.Uint32(buf[32:]), microbatches: le.Uint32(buf[36:]),
			ring: le.Uint32(buf[40:]), frame: le.Uint32(buf[44:]),
			generation: le.Uint64(buf[48:]), rank: le.Uint32(buf[56:]), body: append([]byte(nil), buf[64:n]...),
		}
		if m.kind != ringMsg {
			return m
		}
		c.mapRing(m, oob[:oobn])
	}
}

func (c *client) mapRing(m msg, oob []byte) {
	c.t.Helper()
	control, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(control) != 1 {
		c.t.Fatalf("ring without its memory: %v", err)
	}
	fds, err := unix.ParseUnixRights(&control[0])
	if err != nil {
		c.t.Fatal(err)
	}
	access := unix.PROT_READ | unix.PROT_WRITE
	if binary.LittleEndian.Uint32(m.body[20:]) == 1 {
		access = unix.PROT_READ
	}
	memory, err := unix.Mmap(fds[0], 0, int(binary.LittleEndian.Uint64(m.body)), access, unix.MAP_SHARED)
	if err != nil {
		c.t.Fatal(err)
	}
	c.rings[m.ring], c.fds[m.ring] = memory, fds[0]
}

func (c *client) want(kind uint16) msg {
	c.t.Helper()
	m := c.next()
	if m.kind != kind {
		c.t.Fatalf("message %d came where %d was wanted: %q", m.kind, kind, m.body)
	}
	return m
}

// frame returns a batch's bytes.
func (c *client) frame(m msg) []byte {
	le := binary.LittleEndian
	at, n := le.Uint64(m.body), le.Uint64(m.body[8:])
	return c.rings[m.ring][at : at+n]
}

func (c *client) span(m msg, field int) []byte {
	le := binary.LittleEndian
	at, n := le.Uint64(m.body[field:]), le.Uint64(m.body[field+8:])
	return c.frame(m)[at : at+n]
}

func (c *client) release(m msg) {
	c.t.Helper()
	c.send(msg{kind: release, ring: m.ring, frame: m.frame, generation: m.generation})
}

func (c *client) commit(step uint64) {
	c.t.Helper()
	c.send(msg{kind: commit, attempt: 1, step: step})
}

// house is a running sidecar over a synthetic run.
type house struct {
	t      *testing.T
	dir    string
	run    *sidecartest.Run
	server *sidecar.Server
	cancel func(error)
	done   chan error

	mu     sync.Mutex
	events []sidecar.Event
	news   chan struct{}
}

func open(t *testing.T, c sidecartest.Config, change func(*sidecar.Config)) *house {
	t.Helper()
	h := &house{
		t:    t,
		dir:  t.TempDir(),
		run:  sidecartest.New(c),
		done: make(chan error, 1),
		news: make(chan struct{}, 1),
	}
	ready := make(chan struct{})
	config := sidecar.Config{
		Dir:      h.dir,
		Upstream: h.run,
		Fetcher:  h.run,
		Observe:  h.observe,
		Ready:    func() { close(ready) },
	}
	for r := range c.World - c.Elsewhere {
		config.Ranks = append(config.Ranks, millrace.Rank(r))
	}
	if change != nil {
		change(&config)
	}
	h.dir = config.Dir
	s, err := sidecar.New(config)
	if err != nil {
		t.Fatal(err)
	}
	h.server = s
	ctx, cancel := contextWithCause(t)
	h.cancel = cancel
	go func() { h.done <- s.Run(ctx) }() // close waits for it
	t.Cleanup(h.close)
	select {
	case <-ready:
	case err := <-h.done:
		h.done <- err
		t.Fatalf("the sidecar did not start: %v", err)
	}
	return h
}

func (h *house) close() {
	h.cancel(nil)
	if err := <-h.done; err != nil {
		h.t.Errorf("run: %v", err)
	}
	h.done <- nil
	if n := h.run.Payloads(); n != 0 {
		h.t.Errorf("%d payloads were not released", n)
	}
}

func (h *house) path(rank int) string {
	return filepath.Join(h.dir, "rank-"+strconv.Itoa(rank)+".sock")
}

func (h *house) observe(e sidecar.Event) {
	h.mu.Lock()
	h.events = append(h.events, e)
	h.mu.Unlock()
	select {
	case h.news <- struct{}{}:
	default:
	}
}

// until waits for the n-th event of a kind.
func (h *house) until(kind sidecar.EventKind, n int) sidecar.Event {
	h.t.Helper()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	for {
		h.mu.Lock()
		seen := 0
		for _, e := range h.events {
			if e.Kind == kind {
				if seen++; seen == n {
					h.mu.Unlock()
					return e
				}
			}
		}
		h.mu.Unlock()
		select {
		case <-h.news:
		case <-late.C:
			h.t.Fatalf("no %s (number %d) in a minute; events: %s", kind, n, h.dump())
		}
	}
}

func (h *house) dump() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprintf("%+v", h.events)
}
