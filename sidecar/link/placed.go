package link

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"millrace"
	"millrace/internal/seam"
	"millrace/internal/tokenid"
	"millrace/proto"
	"millrace/sidecar/incoming"
)

// Files reads those files of this host that hold token ids as plain arrays.
type Files interface {
	// Read fills into(k) from the place of each row. It may call into from several goroutines. It returns an error if
	// the file is another one than rows has named, before or after the reads.
	Read(ctx context.Context, rows *proto.PlacedRows, into func(k int) []byte) error
}

// The time for which a source's rows are not read in place: after a failure, and after slow reads. The loader reads
// ahead, in the order of the files, so it is the better reader of a device with slow seeks.
const (
	pausedFor = 30 * time.Second
	slowFor   = 10 * time.Minute
)

// Reads of one file are slow if they take longer than slowLeast and slowRow for each row.
const (
	slowLeast = 50 * time.Millisecond
	slowRow   = time.Millisecond
)

// places decides which sources' rows are read in place. It is safe for concurrent use.
type places struct {
	files Files // nil: none are
	clock seam.Clock
	log   *slog.Logger

	mu     sync.Mutex
	paused map[string]time.Time // by source: until then they are not
}

// isOpen reports whether rows of a source are read in place.
func (p *places) isOpen(source string) bool {
	if p.files == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	until, isPaused := p.paused[source]
	if isPaused && !p.clock.Now().Before(until) {
		delete(p.paused, source)
		isPaused = false
	}
	return !isPaused
}

// pause lets the loaders send the rows of a source for a while.
func (p *places) pause(source string, length time.Duration) (isNew bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, isPaused := p.paused[source]
	p.paused[source] = p.clock.Now().Add(length)
	return !isPaused
}

// read reads the rows of a reply that are in files, each into its room. It removes the rows that it cannot read from
// the reply, and returns them.
func (p *places) read(ctx context.Context, plan *millrace.Plan, c *call, r *proto.FetchReply) (missed []uint32,
	err error) {
	for _, rows := range r.Placed {
		if err := c.checkPlaced(plan, rows); err != nil {
			return nil, err
		}
		began := p.clock.Now()
		cause := p.files.Read(ctx, rows, func(k int) []byte {
			return tokenid.Bytes(c.room(rows.Row[k], int(rows.Count[k])).Narrow())
		})
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		source, took := c.partOf(int(rows.Row[0])).of.key.source, p.clock.Now().Sub(began)
		if cause == nil && took > slowLeast+slowRow*time.Duration(len(rows.Row)) && p.pause(source, slowFor) {
			p.log.Info("the loader reads ahead in a file in which reads are slow", "source", source,
				"file", rows.Path, "for", slowFor, "rows", len(rows.Row), "took", took)
		}
		if cause != nil {
			if p.pause(source, pausedFor) {
				p.log.Warn("the loader sends the tokens of a file that this process cannot read in place",
					"source", source, "file", rows.Path, "for", pausedFor, "error", cause)
			}
			missed = append(missed, rows.Row...)
			rows.Row = nil
		}
	}
	r.Placed = slices.DeleteFunc(r.Placed, func(rows *proto.PlacedRows) bool { return rows.Row == nil })
	return missed, nil
}

// checkPlaced refuses rows that were not requested, and rows of another length. A loader of another host knows no place
// on this one.
func (c *call) checkPlaced(plan *millrace.Plan, rows *proto.PlacedRows) error {
	if c.tokens == nil {
		return millrace.Errorf(millrace.ErrMismatch, "%d rows in %s, a file of another host", len(rows.Row), rows.Path)
	}
	if len(rows.Row) == 0 || len(rows.Row) != len(rows.Count) || len(rows.Row) != len(rows.Offset) || rows.Width != 2 {
		return millrace.Errorf(millrace.ErrMismatch, "%d rows in %s, %d counts, %d offsets and ids of %d bytes",
			len(rows.Row), rows.Path, len(rows.Count), len(rows.Offset), rows.Width)
	}
	for k, row := range rows.Row {
		if uint64(row) >= uint64(len(c.index)) {
			return millrace.Errorf(millrace.ErrMismatch, "row %d of %d", row, len(c.index))
		}
		if a := &plan.Assignments[c.index[row]]; int(rows.Count[k]) != incoming.Planned(a) {
			return millrace.Errorf(millrace.ErrMismatch,
				"%d tokens lie in %s for source %d, ordinal %d, offset %d; the plan has %d", rows.Count[k], rows.Path,
				a.Source, a.Ordinal, a.Offset, incoming.Planned(a))
		}
	}
	return nil
}

// subset is a request for some rows of a call, which the loader sends.
type subset struct {
	req  *proto.FetchRequest
	rows []uint32 // by row of req: the row of the call
	part []uint32 // by part of req: the part of the call
}

// only returns the request for some rows.
func (c *call) only(rows []uint32) *subset {
	slices.Sort(rows)
	s := &subset{rows: rows, req: &proto.FetchRequest{
		Fence: c.req.Fence, Step: c.req.Step, Hedge: c.req.Hedge, Again: c.req.Again,
	}}
	for k, x := range c.parts {
		from := c.req.Part[k]
		to := &proto.FetchPart{Source: from.Source, Stripe: from.Stripe, Term: from.Term}
		for ; len(rows) > 0 && int(rows[0]) < x.first+len(x.which); rows = rows[1:] {
			i := int(rows[0]) - x.first
			to.Ordinal = append(to.Ordinal, from.Ordinal[i])
			to.Offset = append(to.Offset, from.Offset[i])
			to.Length = append(to.Length, from.Length[i])
		}
		if len(to.Ordinal) > 0 {
			s.req.Part, s.part = append(s.req.Part, to), append(s.part, uint32(k))
		}
	}
	return s
}

// number gives the rows and parts of a reply to a subset the numbers of the call. It leaves wrong numbers wrong.
func (s *subset) number(r *proto.FetchReply) {
	for k, row := range r.Row {
		r.Row[k] = numbered(s.rows, row)
	}
	for _, f := range r.Failed {
		f.Part = numbered(s.part, f.Part)
	}
}

func numbered(of []uint32, i uint32) uint32 {
	if uint64(i) >= uint64(len(of)) {
		return 1<<32 - 1
	}
	return of[i]
}

// replies posts the replies to a request, up to the end of its stream. It returns the rows that this process could not
// read in place. A subset has none.
func (g *gathering) replies(
	ctx context.Context,
	c *call,
	of *subset,
	post func(callEvent) bool,
) (missed []uint32, err error) {
	req := c.req
	if of != nil {
		req = of.req
	}
	stream, err := g.openStream(ctx, c, req)
	for err == nil {
		var r *proto.FetchReply
		if r, err = stream.Recv(); err != nil {
			break
		}
		c.life.Live()
		if of != nil {
			of.number(r)
		}
		if len(r.Placed) > 0 {
			var more []uint32
			if more, err = g.places.read(ctx, g.payload.plan, c, r); err != nil {
				break
			}
			missed = append(missed, more...)
		}
		if len(missed) > 0 {
			r.Last = false
		}
		if !post(callEvent{call: c, reply: r}) {
			return nil, ctx.Err()
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return missed, err
}
