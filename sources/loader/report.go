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

// reporter sends events on one stream. It is safe for concurrent use, which streams are not.
type reporter struct {
	mu     sync.Mutex
	stream proto.Orchestrator_LoadClient

	offering sync.Mutex // guards offers
	offers   []*proto.Offers
	ready    chan struct{} // holds one token while there are offers
}

func newReporter(stream proto.Orchestrator_LoadClient) *reporter {
	return &reporter{stream: stream, ready: make(chan struct{}, 1)}
}

// offer queues the next offers of a stripe. A lost stream is no fault of the caller: the next session repeats the
// offers.
func (r *reporter) offer(next *proto.Offers) {
	r.offering.Lock()
	r.offers = append(r.offers, next)
	r.offering.Unlock()
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

// maxOffered is the number of documents from which on a message holds no further stripe: about 256 KiB.
const maxOffered = 8 << 10

// sendOffers sends queued offers until ctx ends or the stream does. Those of several stripes share a message.
func (r *reporter) sendOffers(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.ready:
		}
		runtime.Gosched() // feeds that were woken by the same order make their offers
		r.offering.Lock()
		all := r.offers
		r.offers = nil
		r.offering.Unlock()
		for len(all) > 0 {
			n, documents := 1, len(all[0].Ordinal)
			for n < len(all) && documents+len(all[n].Ordinal) <= maxOffered {
				documents += len(all[n].Ordinal)
				n++
			}
			offered := &proto.Offered{Stripes: all[:n:n]}
			if r.send(0, &proto.LoaderEvent{Event: &proto.LoaderEvent_Offered{Offered: offered}}) != nil {
				return
			}
			all = all[n:]
		}
	}
}

// send sends an event with the term of its assignment, 0 if it belongs to none.
func (r *reporter) send(term uint64, e *proto.LoaderEvent) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Fence = &proto.Fence{Stream: string(millrace.Train), Term: term}
	return r.stream.Send(e)
}

// trouble reports reads of a source that fail for now. An empty text ends the trouble.
func (r *reporter) trouble(source, text string) {
	_ = r.send(0,
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
