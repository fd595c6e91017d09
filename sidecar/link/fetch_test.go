package link

import (
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	pb "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/internal/seam"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar"
	"millrace/sidecar/incoming"
	"millrace/sidecar/retrieve"
)

func (x *session) directory(stripes ...*proto.LoaderStripe) {
	x.t.Helper()
	x.order(1, &proto.SidecarOrder{Order: &proto.SidecarOrder_Loaders{Loaders: &proto.Loaders{Stripes: stripes}}})
}

func stripe(source string, index, of uint32, term uint64, address string) *proto.LoaderStripe {
	return &proto.LoaderStripe{Source: source, Stripe: index, Stripes: of, Term: term, Address: address, Name: address}
}

// wide returns a plan over two sources. The second one has documents in every stripe.
func wide(t *testing.T) *millrace.Plan {
	t.Helper()
	var segments []millrace.Segment
	for i := range uint64(40) {
		segments = append(segments, millrace.Segment{
			Source:  uint32(i % 2),
			Ordinal: millrace.Ordinal(i * 7),
			Offset:  uint32(i % 3),
			Length:  uint32(1 + i%5),
		})
	}
	p, err := wire.PlanFromProto(planOf(1, 0, segments...))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (w *world) fetch(p *millrace.Plan) (sidecar.Payload, error) {
	return w.link.Fetch(w.ctx(), p, []millrace.Rank{0})
}

// verify compares a payload with the tokens of the documents.
func verify(t *testing.T, p *millrace.Plan, payload sidecar.Payload, more bool) {
	t.Helper()
	got, err := payload.Tokens(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range p.Part(0, 0) {
		var want []uint32
		n := a.Length
		if more && a.More {
			n++
		}
		for k := range n {
			want = append(want, token(a.Source, uint64(a.Ordinal), a.Offset+k))
		}
		if !slices.Equal(got[i].IDs(), want) {
			t.Fatalf("segment %d is %v, want %v", i, got[i].IDs(), want)
		}
	}
	payload.Release()
	if _, err := payload.Tokens(0, 0); err == nil {
		t.Error("tokens are given after their release")
	}
}

func TestFetchGathersSourcesAndStripes(t *testing.T) {
	w, x := newWorld(t, 1)
	x.welcome("code", "web")
	code, web0, web1 := newStore(w, "l0", 0, 3), newStore(w, "l1", 1, 4), newStore(w, "l2", 1, 5)
	x.directory(stripe("code", 0, 1, 3, "l0"), stripe("web", 0, 2, 4, "l1"), stripe("web", 1, 2, 5, "l2"))
	p := wide(t)
	for i := range p.Assignments {
		p.Assignments[i].More = i%4 == 0
	}
	for _, s := range []*store{code, web0, web1} {
		s.more = func(o uint64) bool { return o/7%4 == 0 }
	}
	// This host does not fetch the part of another rank.
	p.Assignments = append(p.Assignments,
		millrace.Assignment{Segment: millrace.Segment{Source: 0, Ordinal: 999, Length: 1}, Rank: 1})
	eventually(t, func() bool { return w.link.dir.served("web") == 2 })
	payload, err := w.fetch(p)
	if err != nil {
		t.Fatal(err)
	}
	verify(t, p, payload, true)
	for at, s := range []*store{web0, web1} {
		asked := s.requests()
		if len(asked) != 1 || !slices.IsSorted(asked[0]) ||
			slices.ContainsFunc(asked[0], func(o uint64) bool { return o/32%2 != uint64(at) }) {
			t.Errorf("stripe %d was asked for %v", at, asked)
		}
	}
	if slices.Contains(code.requests()[0], 999) {
		t.Error("another host's segment was fetched")
	}
}

// lookup returns the loader and the standby of a stripe.
func (d *directory) lookup(key stripeKey) (using, spare *retrieve.Loader) {
	p := &portion{key: key}
	d.name([]*portion{p})
	return p.using, p.spare
}

// served counts the stripes of a source that have a loader.
func (d *directory) served(source string) int {
	d.Lock()
	defer d.Unlock()
	n := 0
	for key, r := range d.routes {
		if key.source == source && r.using != nil {
			n++
		}
	}
	return n
}

// TestALoaderThatDiesIsReplacedForTheRest: its successor has another term and another address.
func TestALoaderThatDiesIsReplacedForTheRest(t *testing.T) {
	w, x := newWorld(t, 1)
	x.welcome("code", "web")
	newStore(w, "l0", 0, 3)
	web := newStore(w, "l1", 1, 4)
	died := make(chan struct{})
	web.fault = func(answered int) error {
		if answered < 6 {
			return nil
		}
		select {
		case <-died:
		default:
			close(died)
		}
		return errors.New("killed")
	}
	x.directory(stripe("code", 0, 1, 3, "l0"), stripe("web", 0, 1, 4, "l1"))
	eventually(t, func() bool { return w.link.dir.served("web") == 1 })
	p := wide(t)
	got := make(chan sidecar.Payload, 1)
	go func() { // read below
		payload, err := w.fetch(p)
		if err != nil {
			t.Error(err)
		}
		got <- payload
	}()
	<-died
	eventually(t, func() bool { return strings.Contains(w.link.Waiting().Text, "waits for a loader of source web") })
	web.server.Stop()
	x.directory(stripe("code", 0, 1, 3, "l0"))
	next := newStore(w, "l9", 1, 8)
	// its term is not valid yet: it refuses, and the fetch asks it again
	x.directory(stripe("code", 0, 1, 3, "l0"), stripe("web", 0, 1, 7, "l9"))
	eventually(t, func() bool { return len(next.requests()) > 0 })
	x.directory(stripe("code", 0, 1, 3, "l0"), stripe("web", 0, 1, 8, "l9"))
	verify(t, p, <-got, false)
	all := web.requests()[0]
	for _, asked := range next.requests() {
		if len(asked) >= len(all) || !slices.Equal(asked, all[len(all)-len(asked):]) {
			t.Errorf("of %v the successor was asked for %v", all, asked)
		}
	}
	if w.link.Waiting().Text != "" {
		t.Errorf("still waiting: %s", w.link.Waiting().Text)
	}
}

// TestADeadStripeDoesNotStopTheOthers: the rows of other stripes arrive while one stripe has no loader.
func TestADeadStripeDoesNotStopTheOthers(t *testing.T) {
	w, x := newWorld(t, 1)
	x.welcome("code", "web")
	newStore(w, "l0", 0, 3)
	web := newStore(w, "l1", 1, 4)
	slow := make(chan struct{})
	web.fault = func(int) error { <-slow; return nil }
	x.directory(stripe("code", 0, 1, 3, "l0"), stripe("web", 0, 2, 4, "l1"), stripe("web", 1, 2, 5, "nowhere"))
	eventually(t, func() bool { return w.link.dir.served("web") == 2 })
	p := wide(t)
	got := make(chan sidecar.Payload, 1)
	go func() { // read below
		payload, err := w.fetch(p)
		if err != nil {
			t.Error(err)
		}
		got <- payload
	}()
	eventually(t, func() bool { return len(web.requests()) > 0 })
	other := newStore(w, "l2", 1, 5)
	close(slow)
	x.directory(stripe("code", 0, 1, 3, "l0"), stripe("web", 0, 2, 4, "l1"), stripe("web", 1, 2, 5, "l2"))
	verify(t, p, <-got, false)
	if n := len(web.requests()); n != 1 {
		t.Errorf("the living stripe was asked %d times", n)
	}
	if len(other.requests()) == 0 {
		t.Error("the other stripe was not asked")
	}
}

// TestAFinalErrorEndsTheRun: the error is reported to each orchestrator.
func TestAFinalErrorEndsTheRun(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(int) error
		spoil func(*proto.FetchReply) *proto.FetchReply
		want  error
		says  string
	}{
		{
			name: "bad sample", want: millrace.ErrBadSample, says: "a.jsonl#60",
			fault: func(int) error {
				return millrace.Errorf(millrace.ErrBadSample, "fetch web a.jsonl#60: invalid JSON")
			},
		},
		{
			name: "damaged payload", want: millrace.ErrMismatch, says: "payload of step 0 from l1",
			spoil: func(r *proto.FetchReply) *proto.FetchReply { r.Tokens = r.Tokens[:len(r.Tokens)-1]; return r },
		},
		{
			name: "other lengths", want: millrace.ErrMismatch, says: "33 tokens came",
			spoil: func(*proto.FetchReply) *proto.FetchReply { return rowOf(0, make([]uint32, 33)...) },
		},
		{
			name: "other rows", want: millrace.ErrMismatch, says: "row 77",
			spoil: func(*proto.FetchReply) *proto.FetchReply { return rowOf(77, 1) },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, x := newWorld(t, 1)
			x.welcome("code", "web")
			newStore(w, "l0", 0, 3)
			web := newStore(w, "l1", 1, 4)
			web.fault, web.spoil = c.fault, c.spoil
			x.directory(stripe("code", 0, 1, 3, "l0"), stripe("web", 0, 1, 4, "l1"))
			eventually(t, func() bool { return w.link.dir.served("web") == 1 })
			w.orch.server.Stop() // no orchestrator receives the first report
			_, err := w.fetch(wide(t))
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %v", err)
			}
			for range 2 {
				w.orchestrate()
				x = w.orch.next(t)
				if f := x.event().GetFatal(); f.GetReason() != err.Error() {
					t.Fatalf("the orchestrator was told %v", f)
				}
			}
			x.order(1,
				&proto.SidecarOrder{Order: &proto.SidecarOrder_Failed{Failed: &proto.Fatal{Reason: err.Error()}}})
			var run *sidecar.RunError
			if _, err := w.link.Plan(w.ctx(), 1, 9); !errors.As(err, &run) || !strings.Contains(run.Reason, c.says) {
				t.Fatalf("the trainers are told %v", err)
			}
		})
	}
}

func TestAPlanOfAnUnknownSourceIsAnError(t *testing.T) {
	w, x := newWorld(t, 1)
	x.welcome("code")
	x.directory(&proto.LoaderStripe{Source: "code"}) // no stripes: the link refuses it and ends the stream
	w.orch.next(t)
	if _, err := w.fetch(wide(t)); !errors.Is(err, millrace.ErrMismatch) ||
		!strings.Contains(err.Error(), "source 1, the run has 1") {
		t.Fatalf("got %v", err)
	}
}

// three returns a call for three rows of one portion, and the reply to it.
func three() (*call, *millrace.Plan, *proto.FetchReply) {
	p := &millrace.Plan{}
	c := &call{req: &proto.FetchRequest{}}
	c.begin(&portion{}, &retrieve.Loader{}, 0)
	for i, n := range []uint32{3, 1, 2} {
		p.Assignments = append(p.Assignments, millrace.Assignment{Segment: millrace.Segment{Length: n, More: n == 2}})
		c.add(i, i, &p.Assignments[i], rowBytes(&p.Assignments[i]))
	}
	c.tokens = make([]uint32, c.size)
	tokens := wire.AppendIDs(nil, []uint32{1, 2, 3}, false)
	tokens = wire.AppendIDs(tokens, []uint32{7, 8, 1 << 16}, true)
	tokens = wire.AppendIDs(tokens, []uint32{4}, false)
	return c, p, &proto.FetchReply{Row: []uint32{0, 2, 1}, Count: []uint32{3, 3, 1}, Tokens: tokens,
		Wide: []bool{false, true, false}}
}

// try takes replies that may be damaged, as a stream does. The result is an error, or rows of the planned lengths.
func try(t *testing.T, replies ...*proto.FetchReply) (rows [3][]uint32, err error) {
	t.Helper()
	c, plan, _ := three()
	p := &places{files: &testFiles{}, clock: seam.System{}, log: slog.New(slog.DiscardHandler),
		paused: map[string]time.Time{}}
	for _, r := range replies {
		if _, err = p.read(t.Context(), plan, c, r); err != nil {
			break
		}
		err = c.take(plan, r, func(_ *part, i int, row row) error { // the part has all rows of the call
			rows[i] = row.tokens.IDs()
			return nil
		})
		if err != nil {
			break
		}
	}
	if err != nil && !errors.Is(err, millrace.ErrMismatch) {
		t.Fatalf("%v is no mismatch", err)
	}
	for i, tokens := range rows {
		if tokens != nil && len(tokens) != incoming.Planned(&plan.Assignments[i]) {
			t.Fatalf("row %d has %d tokens", i, len(tokens))
		}
	}
	return rows, err
}

func TestRowsComeAsSent(t *testing.T) {
	_, _, whole := three()
	want := [3][]uint32{{1, 2, 3}, {4}, {7, 8, 1 << 16}}
	if rows, err := try(t, whole); err != nil || !reflect.DeepEqual(rows, want) {
		t.Fatalf("%v: %v", err, rows)
	}
	head := &proto.FetchReply{Row: []uint32{0, 2}, Count: []uint32{3, 2}, Tokens: whole.Tokens[:14], Cut: true,
		Wide: []bool{false, true}}
	rest := &proto.FetchReply{Row: []uint32{2, 1}, Count: []uint32{1, 1}, Tokens: whole.Tokens[14:], Last: true,
		Wide: []bool{true, false}}
	if rows, err := try(t, head, rest); err != nil || !reflect.DeepEqual(rows, want) {
		t.Fatalf("cut in two: %v: %v", err, rows)
	}
}

// TestWrongRowsAreRefused: each damage ends the run.
func TestWrongRowsAreRefused(t *testing.T) {
	_, _, whole := three()
	head := &proto.FetchReply{Row: []uint32{2}, Count: []uint32{2}, Tokens: whole.Tokens[:4], Cut: true}
	for says, replies := range map[string][]*proto.FetchReply{
		"row 0 came twice":      {rowOf(0, 1, 2, 3), rowOf(0, 1, 2, 3)},
		"row 3 of 3":            {rowOf(3, 1)},
		"2 tokens came":         {rowOf(0, 1, 2)},
		"2 tokens came for":     {rowOf(1, 1, 2)},
		"rest of row 2":         {head, rowOf(1, 4)},
		"bytes after the last":  {{Row: []uint32{1}, Count: []uint32{1}, Tokens: whole.Tokens}},
		"4 tokens came":         {head, rowOf(2, 7, 8)},
		"1 rows, 2 counts":      {{Row: []uint32{1}, Count: []uint32{1, 1}}},
		"fields of 2 rows":      {{Row: []uint32{1}, Count: []uint32{1}, Fields: []string{"{}", "{}"}}},
		"widths of 2":           {{Row: []uint32{1}, Count: []uint32{1}, Wide: []bool{true, true}}},
		"3 tokens of row 0 in ": {{Row: []uint32{0}, Count: []uint32{3}, Tokens: whole.Tokens[:5]}},
		"1 tokens of row 1 in 2": {{
			Row: []uint32{1}, Count: []uint32{1}, Tokens: whole.Tokens[:2], Wide: []bool{true},
		}},
		"is cut and has no ids": {{Row: []uint32{2}, Count: []uint32{0}, Cut: true}},
		"ids of another width":  {head, rowOf(2, 1<<16)},
	} {
		if _, err := try(t, replies...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

func FuzzTake(f *testing.F) {
	_, _, whole := three()
	raw, err := pb.Marshal(whole)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw, raw)
	f.Add(raw[:len(raw)/2], []byte{})
	if raw, err = pb.Marshal(placedOf(rowOf(0, 1, 2, 3))); err != nil {
		f.Fatal(err)
	}
	f.Add(raw, raw)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		codec := wire.NewPayload()
		var replies []*proto.FetchReply
		for _, raw := range [][]byte{first, second} {
			r := &proto.FetchReply{}
			if codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, r) == nil {
				replies = append(replies, r)
			}
		}
		_, _ = try(t, replies...)
	})
}
