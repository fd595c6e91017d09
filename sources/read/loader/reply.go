package loader

import (
	"sync"
	"time"

	"millrace/internal/arena"
	"millrace/internal/failpoint"
	"millrace/internal/seam"
	"millrace/internal/tokenid"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sources/read/feed"
)

const (
	replyTokens = 256 << 10        // of one reply, at most: 1 MiB if they have 32 bits each
	firstTokens = 16 << 10         // room of a new message; it grows
	replyRows   = 64 << 10         // of one reply, at most: 640 KiB of numbers and counts
	replyFields = 1 << 20          // bytes of fields in one reply, at most
	fileRows    = 64               // rows that take as much room as the name of a file
	replyHeld   = time.Millisecond // the longest that a row waits for others that are still being made
)

// reply gathers the rows of all parts of a request into messages. It is safe for concurrent use.
type reply struct {
	first  []uint32 // by part: the number of its first row
	arena  []uint32 // shared with the sidecar; nil: the messages carry the tokens
	at     []int    // by row: where its tokens begin in the arena
	marks  arena.Marks
	points *failpoint.Set
	clock  seam.Clock
	send   func(*proto.FetchReply) error

	mu     sync.Mutex
	sent   time.Time         // of the last message, or of the start
	next   *proto.FetchReply // being gathered; a sent message has its own memory
	held   int               // tokens in next
	left   int               // tokens of the request that have not come, at most
	fields int               // bytes of fields in next
	placed int               // rows in next that the sidecar reads itself, and fileRows for each of their files
}

func newReply(req *proto.FetchRequest, memory []uint32, cfg *Config, send func(*proto.FetchReply) error) *reply {
	r := &reply{
		first: make([]uint32, len(req.Part)), points: cfg.Fail, clock: cfg.Clock, send: send, sent: cfg.Clock.Now(),
		next: &proto.FetchReply{},
	}
	rows := 0
	for k, part := range req.Part {
		r.first[k] = uint32(rows)
		rows += len(part.Ordinal)
	}
	at := make([]int, 1, rows+1)
	for _, part := range req.Part {
		for i := range part.Ordinal {
			room := 1 // a row may have one token more than its length
			if i < len(part.Length) {
				room += int(part.Length[i])
			}
			at = append(at, at[len(at)-1]+room)
		}
	}
	r.left = at[rows]
	if r.marks = arena.MarksOf(memory, r.left, rows); r.marks != nil {
		r.arena, r.at = memory, at
	}
	return r
}

// add adds a row of a part. It copies the tokens. A row in the arena is the caller's alone, so the copy takes no lock.
func (r *reply) add(part, i int, tokens []uint32, fields string) error {
	row := r.first[part] + uint32(i)
	if r.arena != nil {
		if err := r.write(int(row), tokens, fields == ""); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held > 0 && r.held+len(tokens) > replyTokens || r.fields > 0 && r.fields+len(fields) > replyFields {
		if err := r.flush(); err != nil {
			return err
		}
	}
	if r.arena != nil {
		r.putRow(row, len(tokens), fields)
		return r.flushIfDue()
	}
	isWide := tokenid.IsWide(tokens)
	for len(tokens) > replyTokens {
		r.put(row, tokens[:replyTokens], isWide, "")
		r.next.Cut = true
		if err := r.flush(); err != nil {
			return err
		}
		tokens = tokens[replyTokens:]
	}
	r.put(row, tokens, isWide, fields)
	return r.flushIfDue()
}

// write writes a row to the arena. If this process dies here, the sidecar uses the marked rows alone. A row with fields
// gets no mark: it is complete only with the message that has its fields.
func (r *reply) write(row int, tokens []uint32, mark bool) error {
	to := r.arena[r.at[row]:r.at[row+1]]
	n, err := r.points.Write("loader/arena", tokenid.Bytes(tokens), func(b []byte) (int, error) {
		return copy(tokenid.Bytes(to), b), nil
	})
	if err != nil {
		return err
	}
	if mark {
		r.marks.Set(row, to[:n/4])
	}
	return nil
}

// place adds rows of a part that the sidecar reads itself.
func (r *reply) place(part int, files []feed.Placed) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range files {
		rows := &proto.PlacedRows{
			Path: f.Path, Device: f.Identity.Device, Inode: f.Identity.Inode, Size: f.Identity.Size,
			Modified: f.Identity.Modified, Changed: f.Identity.Changed, Width: f.Width, Count: f.Counts,
			Row: make([]uint32, len(f.Requests)), Offset: make([]uint64, len(f.Requests)),
		}
		for k, i := range f.Requests {
			rows.Row[k], rows.Offset[k] = r.first[part]+uint32(i), uint64(f.Offsets[k])
		}
		r.next.Placed = append(r.next.Placed, rows)
		if r.placed += len(rows.Row) + fileRows; r.placed >= replyRows {
			if err := r.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flushIfDue sends a message that is large or old, because the next row may take as long; mu is held.
func (r *reply) flushIfDue() error {
	if len(r.next.Row) < replyRows && r.clock.Now().Sub(r.sent) < replyHeld {
		return nil
	}
	return r.flush()
}

// putRow adds a row without its tokens to the message; mu is held. The fields of a row that is cut come with its end.
func (r *reply) putRow(row uint32, tokens int, fields string) {
	m := r.next
	m.Row, m.Count = append(m.Row, row), append(m.Count, uint32(tokens))
	wire.SetFields(m, fields)
	r.fields += len(fields)
}

// put adds tokens of a row to the message; mu is held.
func (r *reply) put(row uint32, tokens []uint32, isWide bool, fields string) {
	m := r.next
	if m.Tokens == nil {
		m.Tokens = make([]byte, 0, 2*min(r.left, firstTokens))
	}
	r.putRow(row, len(tokens), fields)
	wire.SetWide(m, isWide)
	m.Tokens = wire.AppendIDs(m.Tokens, tokens, isWide)
	r.held += len(tokens)
	r.left -= min(r.left, len(tokens))
}

// fail adds the reason why rows of a part are missing, and sends it at once.
func (r *reply) fail(part int, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next.Failed = append(r.next.Failed, wire.PartFailed(part, err))
	return r.flush()
}

// finish sends the rest.
func (r *reply) finish() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next.Last = true
	return r.flush()
}

// flush sends the message; mu is held.
func (r *reply) flush() error {
	m := r.next
	r.next, r.held, r.placed, r.fields = &proto.FetchReply{}, 0, 0, 0
	err := r.send(m)
	r.sent = r.clock.Now()
	return err
}
