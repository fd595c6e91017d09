// Package bench measures the batches that this host can deliver: it has trainers that only take batches, the figures of
// a run beside them, and a mock run that serves one step again and again.
package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The parts of docs/protocol.md that a trainer without tensors needs.
const (
	headerSize                                           = 64
	mostDatagram                                         = headerSize + 64<<10
	magic                                                = 0x434c494d
	hello, batch, release, commit, ended, failed, leaves = 1, 4, 5, 6, 8, 9, 13
	continued                                            = 1 // flag: the body continues in the next datagram
)

// Taken is a batch that a trainer took.
type Taken struct {
	Rank int
	At   time.Time
	Step uint64
	Last bool // it is the last microbatch of the step
}

// errAway is the error of a connection that ended without END: another sidecar comes.
var errAway = errors.New("the sidecar is away")

// Take takes the batches of a rank of a run directory as fast as they come, and calls took for each, until the run
// ends (nil) or ctx ends. It does not map or read the tensors.
func Take(ctx context.Context, runDir string, rank int, took func(Taken)) error {
	t := trainer{path: filepath.Join(runDir, fmt.Sprintf("rank-%d.sock", rank)), rank: rank, took: took}
	for {
		err := t.connect(ctx)
		if !errors.Is(err, errAway) {
			return err
		}
		select { // the run is starting, or its sidecar is being replaced
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// trainer has its position over its connections.
type trainer struct {
	path                string
	rank                int
	took                func(Taken)
	begun               bool
	attempt, microbatch uint32
	step                uint64
}

// connect serves one connection.
func (t *trainer) connect(ctx context.Context) error {
	c, err := dial(t.path)
	if err != nil {
		return errAway
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	body := `{"start":"fresh"}`
	if t.begun {
		body = `{"start":"continue"}`
	}
	head := t.header(hello, len(body))
	binary.LittleEndian.PutUint32(head[56:], uint32(t.rank))
	if _, err := c.Write(append(head, body...)); err != nil {
		return t.broken(ctx)
	}
	buf := make([]byte, mostDatagram)
	for {
		n, err := c.Read(buf) // a ring's descriptor that comes along is dropped by the kernel
		if err != nil || n < headerSize {
			return t.broken(ctx)
		}
		if over, err := t.answer(c, buf[:n]); over {
			return err
		}
	}
}

func (t *trainer) broken(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errAway
}

// answer carries out one datagram. over is true if the connection ends with it.
func (t *trainer) answer(c *net.UnixConn, m []byte) (over bool, err error) {
	le := binary.LittleEndian
	flags := le.Uint32(m[8:])
	switch le.Uint16(m[6:]) {
	case batch:
		if flags&continued == 0 {
			return false, t.take(c, m)
		}
	case ended:
		return true, nil
	case failed:
		return true, fmt.Errorf("rank %d: %s", t.rank, strings.TrimSpace(string(m[headerSize:])))
	case leaves:
		return true, errAway
	}
	return false, nil
}

// take gives a batch back at once, and commits its step if it was the step's last one.
func (t *trainer) take(c *net.UnixConn, m []byte) error {
	le := binary.LittleEndian
	t.begun, t.attempt, t.step = true, le.Uint32(m[12:]), le.Uint64(m[24:])
	of := le.Uint32(m[36:])
	t.microbatch = le.Uint32(m[32:]) + 1
	last := t.microbatch == of
	t.took(Taken{Rank: t.rank, At: time.Now(), Step: t.step, Last: last})
	back := t.header(release, 0)
	copy(back[40:56], m[40:56]) // ring, frame, generation
	_, err := c.Write(back)
	if last && err == nil {
		_, err = c.Write(t.header(commit, 0))
		t.step, t.microbatch = t.step+1, 0
	}
	if err != nil {
		return nil // the next read has the reason
	}
	return nil
}

// header returns a header with the trainer's position.
func (t *trainer) header(kind uint16, body int) []byte {
	le := binary.LittleEndian
	b := make([]byte, headerSize, headerSize+body)
	le.PutUint32(b, magic)
	le.PutUint16(b[4:], 1)
	le.PutUint16(b[6:], kind)
	le.PutUint32(b[12:], t.attempt)
	le.PutUint64(b[24:], t.step)
	le.PutUint32(b[32:], t.microbatch)
	le.PutUint32(b[60:], uint32(body))
	return b
}

// dial connects to a socket. A path that is too long for an address is reached through its directory.
func dial(path string) (*net.UnixConn, error) {
	const most = 107
	if len(path) > most {
		dir, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		path = fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	}
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
}
