package loader

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"millrace"
	"millrace/internal/outbox"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sources/read/feed"
)

// reconnect bounds the waits between attempts to connect, so that a restarted orchestrator is found soon.
func reconnect() grpc.ConnectParams {
	return grpc.ConnectParams{MinConnectTimeout: time.Second,
		Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}}
}

// reporter sends the events and offers of one stream through a queue. A stream that ends loses its queue, and the next
// session repeats its events and offers.
type reporter struct {
	queue *outbox.Outbox[*proto.LoaderEvent]
}

func newReporter() *reporter { return &reporter{outbox.New[*proto.LoaderEvent]()} }

// offer queues the next offers of a stripe.
func (r *reporter) offer(next *proto.Offers) {
	r.send(0, &proto.LoaderEvent{
		Event: &proto.LoaderEvent_Offered{Offered: &proto.Offered{Stripes: []*proto.Offers{next}}},
	})
}

// send queues an event with the term of its assignment, 0 if it belongs to none. The caller does not change it later.
func (r *reporter) send(term uint64, e *proto.LoaderEvent) {
	e.Fence = &proto.Fence{Stream: string(millrace.Train), Term: term}
	r.queue.Push(e)
}

// maxOffered is the number of documents from which on a message holds no further stripe: about 256 KiB.
const maxOffered = 8 << 10

// merged makes one message of offers of several stripes that follow each other.
func merged(events []*proto.LoaderEvent) (out []*proto.LoaderEvent) {
	var last *proto.Offered // that may take further stripes
	documents := 0          // in last
	for _, e := range events {
		next := e.GetOffered()
		n := documentsOf(next)
		if last != nil && next != nil && documents+n <= maxOffered {
			last.Stripes = append(last.Stripes, next.Stripes...)
			documents += n
			continue
		}
		out, last, documents = append(out, e), next, n
	}
	return out
}

func documentsOf(o *proto.Offered) (n int) {
	for _, stripe := range o.GetStripes() {
		n += len(stripe.Ordinal)
	}
	return n
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
		if o.Untrained > 0 {
			if m.Untrained == nil {
				m.Untrained = make([]uint32, n)
			}
			m.Untrained[i] = o.Untrained
		}
		if o.Runs != nil {
			m.Runs = append(m.Runs, &proto.UntrainedRuns{Ordinal: uint64(o.Ordinal), Runs: o.Runs})
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
