package link

import (
	"context"
	"fmt"
	"io"
	"sort"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"millrace"
	"millrace/constructors"
	"millrace/internal/arena"
	"millrace/internal/heartbeat"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar/incoming"
	"millrace/sidecar/link/watch"
	"millrace/sidecar/retrieve"
)

// These bound a request and its rows, whatever the size of the step. gRPC refuses messages of 4 MiB.
const (
	callBytes  = 512 << 10 // encoded
	callTokens = 1 << 20   // a longer row has a request of its own
)

// call is one request to a loader, for rows of any number of portions. The gathering's loop owns it.
type call struct {
	to      *retrieve.Loader // of one of its parts; the process is the same for all
	purpose retrieve.Purpose
	parts   []*part
	req     *proto.FetchRequest
	bytes   int          // of req, at most
	index   []int        // by row: the assignment
	at      []int        // by row: where its tokens begin in tokens
	came    []bool       // by row
	lease   *arena.Lease // of the memory of tokens; nil: they come in the replies
	marks   arena.Marks  // of the rows in the arena
	tokens  []uint32     // room for all rows, in the arena or in place; nil: the replies have all
	size    int          // tokens that the rows need
	kept    int64        // bytes of the tokens of replies

	rows    incoming.Rows
	awaited int // rows that have not come from this loader
	open    int // parts that are not over

	cancel     context.CancelFunc
	watched    *watch.Watched
	life       *heartbeat.Wire // its messages are signs of life; nil: it is not watched, or its page is
	began      time.Time
	isAnswered bool
	isComplete bool      // the loader has sent everything
	isFinished bool      // the loader has sent everything, or the request is cancelled
	lateAt     time.Time // when the next reply is late; zero: never
}

// part is the share of a portion in a call.
type part struct {
	number  retrieve.Request
	of      *portion
	call    *call
	loader  *retrieve.Loader
	which   []int // assignments
	rows    []int // of the portion, for each of which
	first   int   // number of its first row in the call
	over    bool  // the portion does not wait for it any more
	hasRows bool  // rows have come
}

// fits reports whether a call has room for one more row of a part. A call always has room for its first row.
func (c *call) fits(bytes, tokens int) bool {
	return len(c.index) == 0 || c.bytes+bytes <= callBytes && c.size+tokens <= callTokens
}

// add adds row k of a portion, which is assignment i, to the last part.
func (c *call) add(k, i int, a *millrace.Assignment, bytes int) {
	x, to := c.parts[len(c.parts)-1], c.req.Part[len(c.parts)-1]
	x.which, x.rows = append(x.which, i), append(x.rows, k)
	to.Ordinal = append(to.Ordinal, uint64(a.Ordinal))
	to.Offset = append(to.Offset, a.Offset)
	to.Length = append(to.Length, a.Length)
	c.index, c.at, c.came = append(c.index, i), append(c.at, c.size), append(c.came, false)
	c.size += int(a.Length) + 1 // a loader may have one token more than planned
	c.bytes += bytes
	c.awaited++
}

// begin adds a part.
func (c *call) begin(p *portion, m *retrieve.Loader, number retrieve.Request) *part {
	x := &part{number: number, of: p, call: c, loader: m, first: len(c.index)}
	c.parts = append(c.parts, x)
	c.req.Part = append(c.req.Part, &proto.FetchPart{Source: p.key.source, Stripe: p.key.stripe, Term: m.Term})
	c.bytes += partBytes(p)
	c.open++
	return x
}

// partBytes bounds the encoded size of a part without rows.
func partBytes(p *portion) int { return len(p.key.source) + 48 }

// rowBytes returns the encoded size of a row.
func rowBytes(a *millrace.Assignment) int {
	return protowire.SizeVarint(uint64(a.Ordinal)) + protowire.SizeVarint(uint64(a.Offset)) +
		protowire.SizeVarint(uint64(a.Length))
}

// partOf returns the part of a row.
func (c *call) partOf(row int) *part {
	return c.parts[sort.Search(len(c.parts), func(k int) bool { return c.parts[k].first > row })-1]
}

// row is a row that has come as a whole.
type row struct {
	tokens constructors.Tokens
	fields string // passed-through fields of its record, a JSON object; empty: none
}

// take gives each complete row of a reply to keep, by its number in its part. keep may retain the tokens: rows keep the
// memory of the reply. take refuses a row that was not requested and a row of another length. Such an error is final.
func (c *call) take(
	plan *millrace.Plan,
	r *proto.FetchReply,
	keep func(x *part, k int, row row) error,
) error {
	c.kept += int64(len(r.Tokens))
	for next, err := range wire.Rows(r, c.lease != nil) {
		if err != nil {
			return err
		}
		number := next.Number
		if uint64(number) >= uint64(len(c.index)) {
			return millrace.Errorf(millrace.ErrMismatch, "row %d of %d", number, len(c.index))
		}
		if c.came[number] {
			return millrace.Errorf(millrace.ErrMismatch, "row %d came twice", number)
		}
		tokens, isWhole, err := c.rows.Add(&next, &plan.Assignments[c.index[number]])
		if err != nil {
			return err
		}
		if !isWhole {
			continue
		}
		if next.IDs == nil { // the loader has written them to the arena
			tokens = c.room(number, next.Count).Tokens(true)
		}
		whole := row{tokens: tokens, fields: next.Fields}
		if err := c.complete(number, whole, keep); err != nil {
			return err
		}
	}
	for _, placed := range r.Placed { // places.read has checked and read them
		for k, number := range placed.Row {
			if c.came[number] {
				return millrace.Errorf(millrace.ErrMismatch, "row %d came twice", number)
			}
			whole := row{tokens: c.room(number, int(placed.Count[k])).Tokens(false)}
			if err := c.complete(number, whole, keep); err != nil {
				return err
			}
		}
	}
	return nil
}

// complete gives a row that has come as a whole to keep.
func (c *call) complete(number uint32, whole row, keep func(x *part, k int, row row) error) error {
	c.came[number] = true
	c.awaited--
	x := c.partOf(int(number))
	return keep(x, int(number)-x.first, whole)
}

// room returns the memory of a row with the given number of tokens.
func (c *call) room(row uint32, tokens int) constructors.Room {
	begin := c.at[row]
	return c.tokens[begin : begin+tokens : begin+tokens]
}

// callEvent is a message of a call: a reply, the end of its stream, or the watcher's verdict.
type callEvent struct {
	call   *call
	reply  *proto.FetchReply
	err    error // of the stream; io.EOF: it is complete
	silent bool
}

// receive asks the loader and posts its replies, then the end of the stream. It asks again for rows that this process
// cannot read in place. It returns early if ctx ends.
func (g *gathering) receive(ctx context.Context, c *call) {
	post := func(h callEvent) bool {
		select {
		case g.callEvents <- h:
			return true
		case <-ctx.Done():
			return false
		}
	}
	missed, err := g.replies(ctx, c, nil, post)
	if err == nil && len(missed) > 0 {
		_, err = g.replies(ctx, c, c.only(missed), post)
	}
	if status.Code(err) == codes.ResourceExhausted {
		err = millrace.Errorf(millrace.ErrInvalid,
			"step %d, request of %d segments to %s: a message is larger than the receiver takes; report it: %v",
			c.req.Step, len(c.index), c.to.Name, err)
	} else if err != nil {
		err = wire.FromStatus(err)
	} else {
		err = io.EOF
	}
	post(callEvent{call: c, err: err})
}

// listen posts the watcher's verdict on the loader of a call.
func (g *gathering) listen(ctx context.Context, c *call, silent <-chan struct{}) {
	select {
	case <-silent:
	case <-ctx.Done():
		return
	}
	select {
	case g.callEvents <- callEvent{call: c, silent: true}:
	case <-ctx.Done():
	}
}

func (g *gathering) openStream(
	ctx context.Context,
	c *call,
	req *proto.FetchRequest,
) (proto.Loader_FetchClient, error) {
	conn, err := g.conns.dial(c.to.Address)
	if err != nil {
		return nil, err
	}
	return proto.NewLoaderClient(conn).Fetch(ctx, req)
}

// salvage files the rows of a part that its loader has completed in the arena and not reported.
func (g *gathering) salvage(x *part) error {
	c, found := x.call, 0
	if c.lease == nil || x.over {
		return nil
	}
	for k, i := range x.which {
		if c.came[x.first+k] || !g.payload.tokens[i].IsNone() {
			continue
		}
		tokens := c.room(uint32(x.first+k), incoming.Planned(&g.payload.plan.Assignments[i]))
		if !c.marks.Has(x.first+k, tokens) {
			continue
		}
		if found++; found == 1 {
			g.fail.Hit("sidecar/salvage/before")
		}
		if err := g.file(x, k, row{tokens: tokens.Tokens(true)}); err != nil {
			return err
		}
	}
	if found > 0 {
		g.noteSalvage(x, found)
		g.fail.Hit("sidecar/salvage/after")
	}
	return nil
}

// leftOut returns the error of a loader that has sent everything, but not a part.
func (x *part) leftOut(p *payload) error {
	for _, i := range x.which {
		if p.tokens[i].IsNone() {
			return fmt.Errorf("it left out a requested row (ordinal %d)", p.plan.Assignments[i].Ordinal)
		}
	}
	return nil
}
