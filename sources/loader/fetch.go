package loader

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"millrace"
	"millrace/internal/event"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sources"
)

// replyTokens bounds the tokens of one reply: 1 MiB of payload.
const replyTokens = 256 << 10

// Schema is the payload's: which request a row answers, and its tokens.
func Schema() *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{{Name: "index", Type: arrow.PrimitiveTypes.Uint32},
		{Name: "tokens", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Uint32)}}, nil)
}

// Fetch implements proto.LoaderServer. A request under another term than the stripe's is refused.
func (l *Loader) Fetch(req *proto.FetchRequest, stream proto.Loader_FetchServer) error {
	r := l.reading(req.Source)
	if r == nil || r.stripe != req.Stripe || r.fence() != req.GetFence().GetTerm() {
		return wire.ToStatus(fmt.Errorf("%s does not serve stripe %d of source %s under term %d: %w", l.cfg.Name, req.Stripe, req.Source, req.GetFence().GetTerm(), millrace.ErrFenced))
	}
	n := len(req.Ordinal)
	if len(req.Offset) != n || len(req.Length) != n {
		return wire.ToStatus(fmt.Errorf("fetch of %d ordinals, %d offsets, %d lengths: %w", n, len(req.Offset), len(req.Length), millrace.ErrInvalid))
	}
	reqs := make([]sources.Request, n)
	for i := range reqs {
		reqs[i] = sources.Request{Ordinal: millrace.Ordinal(req.Ordinal[i]), Offset: req.Offset[i], Length: req.Length[i]}
	}
	l.cfg.Events.Write(event.Record{Event: "fetch", Stream: req.GetFence().GetStream(), Attempt: req.GetFence().GetAttempt(), Term: req.GetFence().GetTerm(), Step: int64(req.Step), Rank: -1, Micro: -1, Key: req.Source})
	l.cfg.Fail.Hit("loader/fetch/before")
	reply := newReply(func(b []byte) error { return stream.Send(&proto.FetchReply{Arrow: b}) })
	defer reply.close()
	if err := r.feed.Fetch(stream.Context(), reqs, reply.add); err != nil {
		return wire.ToStatus(err)
	}
	err := reply.flush()
	l.cfg.Fail.Hit("loader/fetch/after")
	l.cfg.Events.Write(event.Record{Event: "fetched", Stream: req.GetFence().GetStream(), Attempt: req.GetFence().GetAttempt(), Term: req.GetFence().GetTerm(), Step: int64(req.Step), Rank: -1, Micro: -1, Key: req.Source})
	return err
}

// reply gathers rows into record batches.
type reply struct {
	send   func([]byte) error
	rows   *array.RecordBuilder
	held   int // tokens
	buffer bytes.Buffer
}

func newReply(send func([]byte) error) *reply {
	return &reply{send: send, rows: array.NewRecordBuilder(memory.DefaultAllocator, Schema())}
}

func (r *reply) add(i int, tokens []uint32) error {
	r.rows.Field(0).(*array.Uint32Builder).Append(uint32(i))
	list := r.rows.Field(1).(*array.ListBuilder)
	list.Append(true)
	list.ValueBuilder().(*array.Uint32Builder).AppendValues(tokens, nil)
	if r.held += len(tokens) + 4; r.held >= replyTokens {
		return r.flush()
	}
	return nil
}

func (r *reply) flush() error {
	record := r.rows.NewRecord()
	defer record.Release()
	r.held = 0
	if record.NumRows() == 0 {
		return nil
	}
	r.buffer.Reset()
	w := ipc.NewWriter(&r.buffer, ipc.WithSchema(record.Schema()))
	if err := errors.Join(w.Write(record), w.Close()); err != nil {
		return fmt.Errorf("encode payload: %w", err)
	}
	return r.send(r.buffer.Bytes())
}

func (r *reply) close() { r.rows.Release() }

func canceled(err error) bool { return errors.Is(err, context.Canceled) }
