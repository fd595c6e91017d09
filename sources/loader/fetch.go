package loader

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"millrace"
	"millrace/internal/event"
	"millrace/internal/seam"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sources/feed"
)

const (
	replyTokens = 256 << 10        // of one reply, at most: 1 MiB of payload
	replyHeld   = time.Millisecond // the longest that a row waits for others that are still being made
)

// Schema returns the columns of a payload: the index of the request that a row answers, and the tokens.
func Schema() *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{{Name: "index", Type: arrow.PrimitiveTypes.Uint32},
		{Name: "tokens", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Uint32)}}, nil)
}

// Fetch implements proto.LoaderServer. A request under another term than the stripe's is refused.
func (l *Loader) Fetch(req *proto.FetchRequest, stream proto.Loader_FetchServer) error {
	l.cfg.Beat.Begin()
	defer l.cfg.Beat.End()
	r := l.reading(stripe{req.Source, req.Stripe})
	if r == nil || r.term.Load() != req.GetFence().GetTerm() {
		return wire.ToStatus(millrace.Errorf(millrace.ErrFenced,
			"fetch stripe %d of source %s: %s does not serve it under term %d",
			req.Stripe, req.Source, l.cfg.Name, req.GetFence().GetTerm()))
	}
	n := len(req.Ordinal)
	if len(req.Offset) != n || len(req.Length) != n {
		return wire.ToStatus(millrace.Errorf(millrace.ErrInvalid,
			"fetch from source %s: the request has %d ordinals, %d offsets and %d lengths",
			req.Source, n, len(req.Offset), len(req.Length)))
	}
	reqs, size := make([]feed.Request, n), uint64(n) // each may have one token more than its length
	for i := range reqs {
		size += uint64(req.Length[i])
		reqs[i] = feed.Request{Ordinal: millrace.Ordinal(req.Ordinal[i]), Offset: req.Offset[i], Length: req.Length[i]}
	}
	fence := req.GetFence()
	write := func(name string) {
		l.cfg.Events.Write(event.Record{Event: name, Stream: fence.GetStream(), Attempt: fence.GetAttempt(),
			Term: fence.GetTerm(), Step: int64(req.Step), Rank: -1, Micro: -1, Key: r.of.String()})
	}
	write("fetch")
	l.cfg.Fail.Hit("loader/fetch/before")
	reply := newReply(int(min(size, replyTokens)), l.cfg.Clock, func(b []byte) error {
		l.cfg.Fail.Hit("loader/reply/before")
		err := stream.Send(&proto.FetchReply{Arrow: b})
		l.cfg.Fail.Hit("loader/reply/after")
		return err
	})
	fetch := r.feed.Fetch
	if req.Again {
		l.cfg.Fail.Hit("loader/again/before")
		fetch = r.feed.FetchAgain
	}
	add := func(i int, tokens []uint32) error {
		l.cfg.Beat.Progress()
		return reply.add(i, tokens)
	}
	if err := fetch(stream.Context(), reqs, add); err != nil {
		return wire.ToStatus(errors.Join(err, reply.flush())) // the finished documents need not be made again
	}
	err := reply.flush()
	l.cfg.Fail.Hit("loader/fetch/after")
	write("fetched")
	return err
}

// reply gathers rows into record batches. It reuses its slices after every flush; a sent batch has its own memory.
type reply struct {
	send    func([]byte) error
	clock   seam.Clock
	sent    time.Time // of the last flush, or of the start
	index   []uint32
	offsets []int32
	values  []uint32
}

// newReply returns a reply with room for size tokens. It grows.
func newReply(size int, clock seam.Clock, send func([]byte) error) *reply {
	return &reply{send: send, clock: clock, sent: clock.Now(), offsets: []int32{0}, values: make([]uint32, 0, size)}
}

func (r *reply) add(i int, tokens []uint32) error {
	if len(r.values) > 0 && len(r.values)+len(tokens) > replyTokens {
		if err := r.flush(); err != nil {
			return err
		}
	}
	r.index = append(r.index, uint32(i))
	r.values = append(r.values, tokens...)
	r.offsets = append(r.offsets, int32(len(r.values)))
	if r.clock.Now().Sub(r.sent) < replyHeld {
		return nil
	}
	return r.flush() // the next row may take as long
}

func (r *reply) flush() error {
	if len(r.index) == 0 {
		return nil
	}
	record := r.record()
	defer record.Release()
	out := bytes.NewBuffer(make([]byte, 0, 4*(len(r.values)+len(r.index)+len(r.offsets))+4096))
	w := ipc.NewWriter(out, ipc.WithSchema(record.Schema()))
	if err := errors.Join(w.Write(record), w.Close()); err != nil {
		return fmt.Errorf("encode payload: %w", err)
	}
	r.index, r.offsets, r.values = r.index[:0], r.offsets[:1], r.values[:0]
	err := r.send(out.Bytes())
	r.sent = r.clock.Now()
	return err
}

// record returns a view of the gathered rows.
func (r *reply) record() arrow.Record {
	schema := Schema()
	words := func(n int, b []byte) arrow.ArrayData {
		return array.NewData(arrow.PrimitiveTypes.Uint32, n, []*memory.Buffer{nil, memory.NewBufferBytes(b)}, nil, 0, 0)
	}
	values := words(len(r.values), arrow.Uint32Traits.CastToBytes(r.values))
	offsets := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(r.offsets))
	lists := array.NewData(schema.Field(1).Type, len(r.index), []*memory.Buffer{nil, offsets},
		[]arrow.ArrayData{values}, 0, 0)
	columns := []arrow.Array{
		array.MakeFromData(words(len(r.index), arrow.Uint32Traits.CastToBytes(r.index))),
		array.MakeFromData(lists),
	}
	return array.NewRecord(schema, columns, int64(len(r.index)))
}
