package loader

import (
	"context"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"millrace"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sources/feed"
)

// reconnect bounds the waits between attempts to connect, so that a restarted orchestrator is found soon.
func reconnect() grpc.ConnectParams {
	return grpc.ConnectParams{MinConnectTimeout: time.Second,
		Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}}
}

// reporter queues the events and offers of one stream. Nobody who queues one waits for the stream: it may wait for a
// connection, and the loader then serves sidecars as before. A stream that ends loses its queue, and the next session
// repeats its events and offers.
type reporter struct {
	mu     sync.Mutex
	isOver bool // the stream has ended
	events []*proto.LoaderEvent
	offers []*proto.Offers
	queued chan struct{} // holds one token while there are any
}

func newReporter() *reporter { return &reporter{queued: make(chan struct{}, 1)} }

// offer queues the next offers of a stripe.
func (r *reporter) offer(next *proto.Offers) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isOver {
		r.offers = append(r.offers, next)
		r.wake()
	}
}

// send queues an event with the term of its assignment, 0 if it belongs to none. The caller does not change it later.
func (r *reporter) send(term uint64, e *proto.LoaderEvent) {
	e.Fence = &proto.Fence{Stream: string(millrace.Train), Term: term}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isOver {
		r.events = append(r.events, e)
		r.wake()
	}
}

// wake wakes carry. The caller holds the lock.
func (r *reporter) wake() {
	select {
	case r.queued <- struct{}{}:
	default:
	}
}

// isIdle reports whether no event waits. Figures, which later ones replace, are not queued behind others, so that the
// queue of a stuck stream stays short.
func (r *reporter) isIdle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.isOver && len(r.events) == 0
}

// take empties the queues.
func (r *reporter) take() (events []*proto.LoaderEvent, offers []*proto.Offers) {
	r.mu.Lock()
	defer r.mu.Unlock()
	events, offers = r.events, r.offers
	r.events, r.offers = nil, nil
	return events, offers
}

// end drops the queues, because the stream has ended.
func (r *reporter) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isOver, r.events, r.offers = true, nil, nil
}

// maxOffered is the number of documents from which on a message holds no further stripe: about 256 KiB.
const maxOffered = 8 << 10

// carry sends queued events and offers until ctx ends or the stream does. It returns no error: the stream's reader gets
// the same one, with its reason, and ends.
func (r *reporter) carry(ctx context.Context, stream proto.Orchestrator_LoadClient) {
	defer r.end()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.queued:
		}
		runtime.Gosched() // feeds that were woken by the same order make their offers
		events, offers := r.take()
		for _, e := range append(events, messages(offers)...) {
			if stream.Send(e) != nil {
				return
			}
		}
	}
}

// messages makes messages of offers. Those of several stripes share one.
func messages(all []*proto.Offers) (out []*proto.LoaderEvent) {
	for len(all) > 0 {
		n, documents := 1, len(all[0].Ordinal)
		for n < len(all) && documents+len(all[n].Ordinal) <= maxOffered {
			documents += len(all[n].Ordinal)
			n++
		}
		out = append(out, &proto.LoaderEvent{
			Fence: &proto.Fence{Stream: string(millrace.Train)},
			Event: &proto.LoaderEvent_Offered{Offered: &proto.Offered{Stripes: all[:n:n]}},
		})
		all = all[n:]
	}
	return out
}

// trouble reports reads of a source that fail for now. An empty text ends the trouble.
func (r *reporter) trouble(source, text string) {
	r.send(0,
		&proto.LoaderEvent{Event: &proto.LoaderEvent_Trouble{Trouble: &proto.Trouble{Source: source, Text: text}}})
}

// offers encodes a feed's batch, under the term of the stripe's assignment.
func offers(of stripe, term uint64, b feed.Batch) *proto.Offers {
	n := len(b.Offers)
	m := &proto.Offers{
		Source: of.source, Stripe: of.index, Term: term, End: b.End, EndOrdinal: uint64(b.EndOrdinal),
		Ordinal: make([]uint64, n), Epoch: make([]uint32, n), Shard: make([]uint32, n), Record: make([]uint64, n),
		Tokens: make([]uint32, n),
	}
	for i := range b.Offers {
		o := &b.Offers[i]
		m.Ordinal[i], m.Epoch[i] = uint64(o.Ordinal), uint32(o.Epoch)
		m.Shard[i], m.Record[i] = o.ID.Shard, o.ID.Record
		m.Tokens[i] = o.Lengths.Tokens
		if o.Lengths.Patches > 0 {
			if m.Patches == nil {
				m.Patches = make([]uint32, n)
			}
			m.Patches[i] = o.Lengths.Patches
		}
		if o.SampleMeta.Offset > 0 {
			if m.Offset == nil {
				m.Offset = make([]uint32, n)
			}
			m.Offset[i] = o.SampleMeta.Offset
		}
		if o.Refused != 0 {
			if m.Refused == nil {
				m.Refused = make([]uint64, n)
			}
			m.Refused[i] = o.Refused
		}
		if q := o.Quarantine; q != nil {
			m.Rejects = append(m.Rejects, &proto.Quarantine{
				Source:  q.Source,
				Id:      q.ID,
				Offset:  q.Offset,
				Reason:  q.Reason,
				Ordinal: uint64(o.Ordinal),
			})
		}
	}
	for _, a := range b.SeekPoints {
		m.SeekPoints = append(m.SeekPoints, wire.SeekPointToProto(a))
	}
	return m
}
