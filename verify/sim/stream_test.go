package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sources"
	"millrace/sources/read/feed"
	"millrace/sources/read/order"
)

// stream is the offers of a real source of files, read once from the beginning. Many runs use it, in any stripes.
type stream struct {
	manifest   *proto.Manifest
	offers     []feed.Offer
	seekPoints []millrace.SeekPoint
	end        bool // the source has no more offers
}

// files writes a source's files: 12 of 45 records each, some empty and some longer than a sequence.
func files(t *testing.T, dir, source string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(len(source)), 77))
	for i := range 12 {
		var text strings.Builder
		for range 45 {
			short := func() int { return 1 + rng.IntN(60) }
			lengths := []int{0, 1, 64, 128, 300, 1 + rng.IntN(200), short(), short(), short()}
			fmt.Fprintln(&text, lengths[rng.IntN(len(lengths))])
		}
		path := filepath.Join(dir, source, fmt.Sprintf("%02d.jsonl", i))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// readStream reads the ordinals of a source below upTo. If bad is set, every 23rd record cannot be decoded.
func readStream(t *testing.T, dir, name string, shuffle millrace.Shuffle, epochs uint32, upTo int, bad bool) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	src, err := sources.Open(
		ctx,
		sources.Spec{
			Name:     name,
			Format:   numbers{},
			Base:     filepath.Join(dir, name),
			Patterns: []string{"."},
			Shuffle:  shuffle,
			Seed:     7,
			Epochs:   epochs,
		},
		sources.OpenOptions{},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	feed := feed.New(src, feed.Position{}, order.Stripe{Of: 1}, feed.Config{Parallel: 1})
	feed.Want(millrace.Ordinal(upTo))
	ended := make(chan error, 1)
	go func() { ended <- feed.Run(ctx) }() // waited for below
	s := &stream{manifest: wire.ManifestToProto(src.Manifest())}
	for len(s.offers) < upTo && !s.end {
		b, err := feed.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		s.offers, s.seekPoints, s.end = append(s.offers, b.Offers...), append(s.seekPoints, b.SeekPoints...), b.End
	}
	cancel()
	<-ended
	for i := range s.offers {
		if o := &s.offers[i]; bad && (o.ID.Record*7+uint64(o.ID.Shard))%23 == 0 {
			o.Rejected, o.Lengths.Tokens = true, 0
			id := src.Manifest().SampleName(o.ID)
			o.Quarantine = &millrace.Quarantine{Source: name, ID: id, Reason: "it is broken"}
		}
	}
	return s
}

// read is a stripe of a stream with its reader's order.
type read struct {
	*stream
	order *proto.ReadFrom
	next  uint64
}

// offer returns the stripe's offers below an ordinal.
func (r *read) offer(until uint64) *proto.Offers {
	m := &proto.Offers{Source: r.order.Source, Stripe: r.order.Stripe}
	for ; r.next < until; r.next++ {
		if r.next >= uint64(len(r.offers)) {
			m.End, m.EndOrdinal = r.end, uint64(len(r.offers))
			break
		}
		o := &r.offers[r.next]
		if o.Ordinal.Stripe(uint64(r.order.Stripes)) != uint64(r.order.Stripe) {
			continue
		}
		m.Ordinal, m.Epoch, m.Shard = append(m.Ordinal, uint64(o.Ordinal)), append(m.Epoch, uint32(o.Epoch)), append(
			m.Shard, o.ID.Shard)
		m.Record, m.Tokens, m.Refused = append(m.Record, o.ID.Record), append(m.Tokens, o.Lengths.Tokens), append(
			m.Refused, o.Refused)
		if q := o.Quarantine; q != nil {
			m.Rejects = append(m.Rejects,
				&proto.Quarantine{Source: q.Source, Id: q.ID, Offset: -1, Reason: q.Reason, Ordinal: uint64(o.Ordinal)})
		}
	}
	for _, a := range r.seekPoints {
		if uint64(a.Ordinal) <= r.next && uint64(a.Ordinal) >= r.order.SeekPoint.GetOrdinal() {
			m.SeekPoints = append(m.SeekPoints, wire.SeekPointToProto(a))
		}
	}
	return m
}

// check verifies that the order's seek point exists in the stream, and that it is the newest at or before the ordinal.
func (r *read) check() error {
	want := millrace.SeekPoint{}
	for _, a := range r.seekPoints {
		if uint64(a.Ordinal) <= r.order.Ordinal {
			want = a
		}
	}
	if got := wire.SeekPointFromProto(r.order.SeekPoint); got != want {
		return fmt.Errorf("source %s is read from ordinal %d with the seek point %+v, want %+v", r.order.Source,
			r.order.Ordinal, got, want)
	}
	return nil
}

// refuse lets filters refuse some of the records.
func (s *stream) refuse() {
	for i := range s.offers {
		o := &s.offers[i]
		if o.ID.Record%3 == 0 {
			o.Refused |= 1
		}
		if o.ID.Record%5 == 0 {
			o.Refused |= 2
		}
	}
}
