package sidecar_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"millrace"
	"millrace/constructors"
	"millrace/internal/needs"
	"millrace/sidecar"
	"millrace/sidecar/sidecartest"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == trainerArg {
		trainer(os.Args[2])
		return
	}
	goleak.VerifyTestMain(m)
}

func contextWithCause(t *testing.T) (context.Context, func(error)) {
	return context.WithCancelCause(context.WithoutCancel(t.Context()))
}

var small = sidecartest.Config{Steps: 6, World: 2, Microbatches: 2, Rows: 2, Length: 16}

// TestWholeRun: both ranks get every microbatch in order, with the bytes of the plan. The state comes with each step's
// last microbatch, and END only after the last commit.
func TestWholeRun(t *testing.T) {
	for _, layout := range []millrace.Layout{millrace.Packed, millrace.Varlen} {
		t.Run(string(layout), func(t *testing.T) {
			c := small
			c.Layout = layout
			h := open(t, c, nil)
			trainers := []*client{dial(t, h.path(0)), dial(t, h.path(1))}
			for _, tr := range trainers {
				tr.hello("fresh", nil)
			}
			for _, tr := range trainers {
				if b := tr.want(begin); b.attempt != 1 || b.step != 0 || !bytes.Contains(b.body, []byte(`"world":2`)) {
					t.Errorf("begin %+v: %s", b, b.body)
				}
			}
			for step := range uint64(c.Steps) {
				for rank, tr := range trainers {
					for m := range uint32(c.Microbatches) {
						b := tr.want(batchMsg)
						if b.step != step || b.microbatch != m || b.microbatches != 2 || b.rank != uint32(rank) {
							t.Fatalf("got %+v where step %d microbatch %d comes next", b, step, m)
						}
						compare(t, h.run, tr, b, millrace.Rank(rank))
						tr.release(b)
					}
					if step < uint64(c.Steps)-1 {
						tr.commit(step)
					}
				}
			}
			for rank, tr := range trainers {
				tr.commit(uint64(c.Steps) - 1)
				if e := tr.want(end); e.step != uint64(c.Steps) {
					t.Errorf("the run ended at step %d", e.step)
				}
				if got := h.run.Committed(millrace.Rank(rank)); got != millrace.Step(c.Steps) {
					t.Errorf("the end came when steps below %s were committed upstream", got)
				}
			}
		})
	}
}

// compare builds the batch again and compares every byte to which the descriptor points.
func compare(t *testing.T, run *sidecartest.Run, tr *client, b msg, rank millrace.Rank) {
	t.Helper()
	plan, err := run.Plan(t.Context(), 1, millrace.Step(b.step))
	if err != nil {
		t.Fatal(err)
	}
	payload, err := run.Fetch(t.Context(), plan.Plan, []millrace.Rank{rank})
	if err != nil {
		t.Fatal(err)
	}
	defer payload.Release()
	tokens, err := payload.Tokens(rank, b.microbatch)
	if err != nil {
		t.Fatal(err)
	}
	collator := constructors.New(run.Shape(), 1)
	part := plan.Part(rank, b.microbatch)
	tensors, size := collator.Layout(part)
	want := make([]byte, size)
	if err := collator.Build(want, tensors, part, tokens, nil); err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	if n := int(le.Uint32(b.body[64:])); n != len(tensors) || len(b.body) != 72+88*n+16 {
		t.Fatalf("%d tensors in a body of %d bytes, want %d", n, len(b.body), len(tensors))
	}
	for i, tensor := range tensors {
		rec := b.body[72+88*i:][:88]
		if name := string(bytes.TrimRight(rec[:24], "\x00")); name != tensor.Name {
			t.Fatalf("tensor %d is %q, want %q", i, name, tensor.Name)
		}
		at, n := le.Uint64(rec[72:]), le.Uint64(rec[80:])
		if !bytes.Equal(tr.frame(b)[at:at+n], want[tensor.Offset:tensor.Offset+tensor.Bytes]) {
			t.Errorf("step %d rank %d microbatch %d: %s differs", b.step, rank, b.microbatch, tensor.Name)
		}
	}
	losses := b.body[72+88*len(tensors):]
	loss, step := le.Uint64(losses), le.Uint64(losses[8:])
	if loss != collator.LossTokens(part, tokens, nil) || step != constructors.StepLossTokens(plan.Plan) {
		t.Errorf("%d labels, %d in the step", loss, step)
	}
	if got, want := tr.span(b, 32), plan.State; b.microbatch == b.microbatches-1 && !bytes.Equal(got, want) {
		t.Errorf("state %s, want %s", got, want)
	}
	if lineage := tr.span(b, 16); le.Uint32(lineage) != uint32(len(part)) {
		t.Errorf("%d segments, want %d", le.Uint32(lineage), len(part))
	}
	if !bytes.Equal(b.body[48:64], plan.Placement[:]) {
		t.Error("another placement digest than the plan's")
	}
}

// TestFramesAreCredits: the sidecar pushes one batch for each free frame, and a release brings the next one.
func TestFramesAreCredits(t *testing.T) {
	h := open(t, sidecartest.Config{World: 1, Microbatches: 1, Rows: 1, Length: 16},
		func(c *sidecar.Config) { c.Frames = 3 })
	tr := dial(t, h.path(0))
	tr.hello("", nil)
	tr.want(begin)
	held := []msg{tr.want(batchMsg), tr.want(batchMsg), tr.want(batchMsg)}
	// The feeder may still be fetching the next step at the first request.
	said := ""
	for deadline := time.Now().Add(time.Minute); !strings.Contains(said, "free frame"); {
		if time.Now().After(deadline) {
			t.Fatalf("status %q", said)
		}
		tr.send(msg{kind: wait})
		said = string(tr.want(status).body)
	}
	tr.release(held[1])
	if b := tr.want(batchMsg); b.frame != held[1].frame || b.generation != 2 {
		t.Errorf("got frame %d generation %d", b.frame, b.generation)
	}
}

// TestStaleReleases: a release that names no lent frame is ignored.
func TestStaleReleases(t *testing.T) {
	h := open(t, sidecartest.Config{World: 1, Microbatches: 1, Rows: 1, Length: 16},
		func(c *sidecar.Config) { c.Frames = 2 })
	tr := dial(t, h.path(0))
	tr.hello("", nil)
	tr.want(begin)
	a, b := tr.want(batchMsg), tr.want(batchMsg)
	bogus := []msg{
		{
			ring:       7,
			frame:      a.frame,
			generation: 1,
		}, {ring: a.ring, frame: 1 << 31, generation: 1}, {ring: a.ring, frame: a.frame, generation: 9},
		{ring: ^uint32(0), frame: ^uint32(0), generation: ^uint64(0)},
	}
	for _, m := range bogus {
		m.kind = release
		tr.send(m)
	}
	h.until(sidecar.Stale, len(bogus))
	tr.release(a)
	tr.want(batchMsg)
	tr.release(a) // of the previous generation
	h.until(sidecar.Stale, len(bogus)+1)
	tr.release(b)
	tr.want(batchMsg)
}

// TestTruncate: a trainer cannot truncate the memory of the sidecar.
func TestTruncate(t *testing.T) {
	h := open(t, sidecartest.Config{World: 1, Microbatches: 1, Rows: 1, Length: 16}, nil)
	tr := dial(t, h.path(0))
	tr.hello("", nil)
	tr.want(begin)
	b := tr.want(batchMsg)
	if err := unix.Ftruncate(tr.fds[b.ring], 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("truncate: %v, want EPERM", err)
	}
	if info, err := os.Stat(h.path(0)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket's mode is %v, %v", info.Mode(), err)
	}
}

// otherUser is no user of this machine.
const otherUser = 4242

// TestAListedUserMayConnect: the process of another user, as in another container of a pod, gets batches.
func TestAListedUserMayConnect(t *testing.T) {
	needs.Require(t, "root") // which alone can act as another user
	h := open(t, sidecartest.Config{World: 1, Microbatches: 1, Rows: 1, Length: 16},
		func(c *sidecar.Config) { c.UIDs = []uint32{0, otherUser} })
	dir := filepath.Dir(h.path(0))
	if err := errors.Join(os.Chmod(dir, 0o711), os.Chmod(filepath.Dir(dir), 0o711)); err != nil {
		t.Fatal(err)
	}
	var tr *client
	as(t, otherUser, func() { tr = dial(t, h.path(0)) })
	tr.hello("", nil)
	tr.want(begin)
	tr.want(batchMsg)
	as(t, otherUser+1, func() { tr = dial(t, h.path(0)) })
	if e := tr.want(errorMsg); !strings.Contains(string(e.body), "belongs to user") {
		t.Errorf("an unlisted user was refused with %q", e.body)
	}
}

// as calls a function while this thread, and no other, acts as another user.
func as(t *testing.T, user int, do func()) {
	t.Helper()
	set := func(user int) {
		const keep = ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(user), keep); errno != 0 {
			t.Fatalf("act as user %d: %v", user, errno)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	set(user)
	defer set(0)
	do()
}

// TestARemovedSocketIsMadeAgain: a cleaner removes a socket. A trainer that is connected goes on, and one that comes
// later connects at the same path.
func TestARemovedSocketIsMadeAgain(t *testing.T) {
	h := open(t, small, nil)
	early := dial(t, h.path(0))
	early.hello("fresh", nil)
	before, err := os.Stat(h.path(1))
	if err := errors.Join(err, os.Remove(h.path(0)), os.Remove(h.path(1))); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(h.path(1))
	for began := time.Now(); err != nil && time.Since(began) < 20*time.Second; after, err = os.Stat(h.path(1)) {
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil || after.Mode() != before.Mode() {
		t.Fatalf("its mode is %v: %v", before.Mode(), err)
	}
	late := dial(t, h.path(1))
	late.hello("fresh", nil)
	early.want(begin)
	late.want(begin)
}

// TestLargerBatch: a batch that does not fit comes in a new ring. Frames of the old ring stay valid.
func TestLargerBatch(t *testing.T) {
	h := open(t,
		sidecartest.Config{Steps: 4, World: 1, Microbatches: 1, Rows: 8, Length: 512, Crumbs: 1, Dtype: millrace.Int32},
		nil)
	tr := dial(t, h.path(0))
	tr.hello("", nil)
	tr.want(begin)
	first, second := tr.want(batchMsg), tr.want(batchMsg)
	if first.ring != 0 || second.ring != 1 {
		t.Fatalf("rings %d and %d", first.ring, second.ring)
	}
	compare(t, h.run, tr, first, 0)
	compare(t, h.run, tr, second, 0)
	tr.release(first)
	tr.want(batchMsg)
	h.until(sidecar.Released, 1)
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		run    sidecartest.Config
		change func(*sidecar.Config)
		talk   func(*client)
		want   string
	}{
		"history": {
			run: sidecartest.Config{History: true}, talk: func(c *client) { c.hello("", nil) }, want: "has history",
		},
		"damaged state": {
			talk: func(c *client) { c.hello("state", map[string]any{"state": "?"}) }, want: "state is damaged",
		},
		"no state":      {talk: func(c *client) { c.hello("state", nil) }, want: "without a state"},
		"unknown start": {talk: func(c *client) { c.hello("tomorrow", nil) }, want: "unknown start"},
		"another rank": {
			talk: func(c *client) { c.send(msg{kind: hello, rank: 5, body: []byte("{}")}) },
			want: "rank 5: this run serves rank 0 alone",
		},
		"no HELLO first": {talk: func(c *client) { c.send(msg{kind: commit}) }, want: "read HELLO"},
		"not JSON":       {talk: func(c *client) { c.send(msg{kind: hello, body: []byte("{")}) }, want: "read HELLO"},
		"garbage":        {talk: func(c *client) { c.raw([]byte("GET / HTTP/1.1\r\n")) }, want: "of the datagram"},
		"another protocol": {change: func(c *sidecar.Config) { c.Version = "0.2.1" }, talk: func(c *client) {
			b := msg{kind: hello, rank: ^uint32(0), body: []byte(`{"client":"7.1"}`)}.bytes()
			b[4] = 9
			c.raw(b)
		}, want: `the client "7.1" speaks protocol 9, this sidecar 1: install the client of Millrace 0.2.1`},
		"a failed run": {run: sidecartest.Config{FailAt: 1, FailReason: "no such file"}, talk: func(c *client) {
			c.hello("fresh", nil)
			c.want(begin)
			c.want(batchMsg)
		}, want: "no such file"},
		"commit of the future": {talk: func(c *client) {
			c.hello("fresh", nil)
			c.want(begin)
			c.commit(1 << 40)
			for m := c.next(); m.kind == batchMsg; m = c.next() {
				c.t.Logf("batch %d", m.step)
			}
		}},
		"too little memory": {
			change: func(c *sidecar.Config) { c.RingSize = 8 << 10 },
			talk:   func(c *client) { c.hello("fresh", nil); c.want(begin) },
			want:   "limits.sidecar_memory",
		},
		"another user": {
			change: func(c *sidecar.Config) { c.UIDs = []uint32{otherUser} },
			talk:   func(*client) {},
			want:   "belongs to user",
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := c.run
			run.World, run.Microbatches, run.Rows, run.Length = 1, 1, 1, 16
			h := open(t, run, c.change)
			tr := dial(t, h.path(0))
			c.talk(tr)
			if c.want == "" {
				return
			}
			if e := tr.want(errorMsg); !strings.Contains(string(e.body), c.want) {
				t.Errorf("refused with %q, want %q", e.body, c.want)
			}
			if m := tr.next(); m.kind != 0 {
				t.Errorf("message %d after the refusal", m.kind)
			}
		})
	}
}

// TestARankOfTheSameRun: a client whose own socket is late may ask another socket. The answer does not say that the run
// lacks the rank.
func TestARankOfTheSameRun(t *testing.T) {
	h := open(t, sidecartest.Config{World: 2, Microbatches: 1, Rows: 1, Length: 16}, nil)
	for rank, want := range map[uint32]struct {
		kind uint32
		text string
	}{1: {4, "connect to rank-1.sock"}, 2: {2, "rank 2: this run serves ranks 0 to 1"}} {
		tr := dial(t, h.path(0))
		tr.send(msg{kind: hello, rank: rank, body: []byte("{}")})
		if e := tr.want(errorMsg); e.rank != want.kind || !strings.Contains(string(e.body), want.text) {
			t.Errorf("rank %d at the socket of rank 0: kind %d, %q", rank, e.rank, e.body)
		}
	}
}

func (c *client) raw(b []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// TestLargeState: a state larger than one datagram arrives whole, in both directions.
func TestLargeState(t *testing.T) {
	h := open(t, sidecartest.Config{World: 1, Microbatches: 1, Rows: 1, Length: 16}, nil)
	tr := dial(t, h.path(0))
	body := []byte(`{"start":"state","state":{"seed":1234,"step":3,"pad":"` + strings.Repeat("y", 300_000) + `"}}`)
	for len(body) > 0 {
		n := min(len(body), 64<<10)
		m := msg{kind: hello, rank: ^uint32(0), body: body[:n]}
		if body = body[n:]; len(body) > 0 {
			m.flags = 1
		}
		tr.send(m)
	}
	var got []byte
	for {
		b := tr.want(begin)
		got = append(got, b.body...)
		if b.flags&1 == 0 {
			break
		}
	}
	if !bytes.Contains(got, []byte(strings.Repeat("y", 300_000))) {
		t.Error("the state came back otherwise")
	}
	if b := tr.want(batchMsg); b.step != 3 {
		t.Errorf("the run began at step %d", b.step)
	}
}

// TestOneTrainerARank: the refusal of a second trainer names the first one's process. The claim is free after the first
// has left.
func TestOneTrainerARank(t *testing.T) {
	h := open(t, sidecartest.Config{World: 1, Microbatches: 1, Rows: 1, Length: 16}, nil)
	first := dial(t, h.path(0))
	first.hello("", nil)
	first.want(begin)
	second := dial(t, h.path(0))
	second.hello("latest", nil)
	if e := second.want(errorMsg); e.rank != 3 || !strings.Contains(string(e.body), "being served to process") {
		t.Errorf("error %d %q", e.rank, e.body)
	}
	first.close()
	third := dial(t, h.path(0))
	third.hello("latest", nil)
	third.want(begin)
}

// TestAContinuingTrainerHasTheClaim: another client took the claim in between and has no batch yet. It is refused at
// once. The next client is refused too, and does not hold the claim while it reads the reason.
func TestAContinuingTrainerHasTheClaim(t *testing.T) {
	h := open(t, small, nil)
	stranger := dial(t, h.path(0))
	stranger.hello("latest", nil) // waits for rank 1
	h.until(sidecar.Joined, 1)
	trainer := dial(t, h.path(0))
	trainer.send(msg{kind: hello, attempt: 1, step: 2, rank: ^uint32(0), body: []byte(`{"start":"continue"}`)})
	if e := stranger.want(errorMsg); e.rank != 3 || !strings.Contains(string(e.body), "continues in process") {
		t.Errorf("error %d %q", e.rank, e.body)
	}
	stranger.close()
	if b := trainer.want(begin); b.step != 2 {
		t.Errorf("it goes on at step %d", b.step)
	}
	late := dial(t, h.path(0))
	late.send(msg{kind: hello, attempt: 1, step: 2, rank: ^uint32(0), body: []byte(`{"start":"continue"}`)})
	if e := late.want(errorMsg); e.rank != 3 || !strings.Contains(string(e.body), "being served to process") {
		t.Errorf("error %d %q", e.rank, e.body)
	}
}

// TestARefusedTrainerFreesItsRank: the next client waits until the refused one has left, and is served.
func TestARefusedTrainerFreesItsRank(t *testing.T) {
	h := open(t, sidecartest.Config{World: 1, Microbatches: 1, Rows: 1, Length: 16}, nil)
	refused := dial(t, h.path(0))
	refused.hello("state", map[string]any{"state": "?"})
	refused.want(errorMsg)
	next := dial(t, h.path(0))
	next.hello("fresh", nil)
	next.want(begin)
}

// TestLeavesWhileJoining: if a trainer leaves before the others have joined, its join is dropped.
func TestLeavesWhileJoining(t *testing.T) {
	h := open(t, small, nil)
	early := dial(t, h.path(0))
	early.hello("fresh", nil)
	h.until(sidecar.Joined, 1)
	early.close()
	h.until(sidecar.Gone, 1)
	for r := range 2 {
		dial(t, h.path(r)).hello("", nil)
	}
	h.until(sidecar.Began, 2)
}

// TestFailureOfTheWhole: waiting trainers receive the reason of a failed run.
func TestFailureOfTheWhole(t *testing.T) {
	h := open(t, small, nil)
	tr := dial(t, h.path(0))
	tr.hello("fresh", nil)
	h.until(sidecar.Joined, 1)
	h.cancel(&sidecar.RunError{Reason: "source web is damaged"})
	if e := tr.want(errorMsg); e.rank != 1 || string(e.body) != "source web is damaged" {
		t.Errorf("error %d %q", e.rank, e.body)
	}
}

// TestStopAfterCommit: a commit that a trainer sent before the sidecar has to leave is not lost, read or unread.
func TestStopAfterCommit(t *testing.T) {
	for range 20 {
		c := small
		c.World = 1
		h := open(t, c, nil)
		tr := dial(t, h.path(0))
		tr.hello("fresh", nil)
		tr.want(begin)
		for range 2 * c.Microbatches {
			tr.release(tr.want(batchMsg))
		}
		tr.commit(0)
		tr.commit(1)
		h.close()
		if got := h.run.Committed(0); got != 2 {
			t.Fatalf("committed below step %d, want 2", got)
		}
	}
}

// TestLeaving: LEAVING comes after all pushed batches and before the end of the connection.
func TestLeaving(t *testing.T) {
	c := small
	c.World = 1
	h := open(t, c, nil)
	tr := dial(t, h.path(0))
	tr.hello("fresh", nil)
	tr.want(begin)
	first := tr.want(batchMsg)
	h.until(sidecar.Pushed, 4)
	h.cancel(nil)
	last, n := msg{}, 1
	for m := tr.next(); m.kind != 0; m = tr.next() {
		if last = m; m.kind == batchMsg {
			n++
		}
	}
	if last.kind != leaving || n < 4 {
		t.Errorf("the last message is %d, after %d batches", last.kind, n)
	}
	if first.step != 0 {
		t.Errorf("the first batch is of step %d", first.step)
	}
	h.until(sidecar.Parted, 1)
}

// TestAlerts: clients that have begun receive the alerts, and no client receives them before.
func TestAlerts(t *testing.T) {
	c := small
	c.World, c.Alert = 1, "source web has no standby"
	h := open(t, c, nil)
	tr := dial(t, h.path(0))
	tr.hello("fresh", nil)
	tr.want(begin)
	for {
		switch m := tr.next(); m.kind {
		case batchMsg:
			tr.release(m)
		case alerts:
			if string(m.body) != `[{"kind":"unprotected","text":"source web has no standby","since":1}]` {
				t.Errorf("alerts %s", m.body)
			}
			return
		case 0:
			t.Fatal("no alerts came")
		}
	}
}

func TestSocketPaths(t *testing.T) {
	t.Run("long", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 40))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		h := open(t, small, func(c *sidecar.Config) { c.Dir = dir })
		d, err := os.Open(h.dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if err := os.Chdir(dir); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.Chdir("/") }()
		dial(t, "rank-0.sock").hello("fresh", nil)
		h.until(sidecar.Joined, 1)
	})
	t.Run("stale", func(t *testing.T) {
		dir := t.TempDir()
		l, err := net.ListenUnix("unixpacket",
			&net.UnixAddr{Name: filepath.Join(dir, "rank-0.sock"), Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
		h := open(t, small, func(c *sidecar.Config) { c.Dir = dir })
		dial(t, h.path(0)).hello("fresh", nil)
		h.until(sidecar.Joined, 1)
	})
	t.Run("a file in the way", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "rank-1.sock"), []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		run := sidecartest.New(small)
		s, err := sidecar.New(sidecar.Config{Dir: dir, Ranks: []millrace.Rank{0, 1}, Upstream: run, Fetcher: run})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "not a socket") {
			t.Errorf("run: %v", err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			t.Errorf("left behind: %v, %v", entries, err)
		}
	})
	t.Run("only our own is removed", func(t *testing.T) {
		h := open(t, small, nil)
		if err := os.Remove(h.path(0)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(h.path(0), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		h.close()
		entries, err := os.ReadDir(h.dir)
		if err != nil || len(entries) != 1 || entries[0].Name() != "rank-0.sock" {
			t.Errorf("left behind: %v, %v", entries, err)
		}
	})
}

// TestGroupsMapOneCopy: the ranks of a tensor-parallel group get every batch in the same memory. A rank that comes back
// behind the others gets the batches that they have passed in memory of its own, and then the common ones.
func TestGroupsMapOneCopy(t *testing.T) {
	c := small
	c.World, c.TP = 2, 2
	h := open(t, c, func(c *sidecar.Config) { c.Shared.TP = true })
	readOnly := map[string]any{"read_only": true}
	trainers := []*client{dial(t, h.path(0)), dial(t, h.path(1))}
	for _, tr := range trainers {
		tr.hello("fresh", readOnly)
	}
	for _, tr := range trainers {
		tr.want(begin)
	}
	take := func(tr *client) msg {
		b := tr.want(batchMsg)
		compare(t, h.run, tr, b, 0)
		return b
	}
	for range c.Microbatches {
		a, b := take(trainers[0]), take(trainers[1])
		one, other := inode(t, trainers[0].fds[a.ring]), inode(t, trainers[1].fds[b.ring])
		if a.ring != b.ring || a.frame != b.frame || one != other {
			t.Errorf("step %d: frames %d of ring %d and %d of ring %d", a.step, a.frame, a.ring, b.frame, b.ring)
		}
		trainers[0].release(a)
		trainers[1].release(b)
	}
	trainers[1].close()
	first := trainers[0]
	// Without its peer, the first rank goes on. It gets more batches than there are frames, so the sidecar has noticed
	// that the peer left.
	for range (c.Steps - 2) * c.Microbatches {
		first.release(take(first))
	}
	back := dial(t, h.path(1))
	back.hello("continue", readOnly)
	back.want(begin)
	rings := map[uint32]bool{}
	for range c.Steps * c.Microbatches {
		b := take(back)
		rings[b.ring>>31] = true
		back.release(b)
		if b.microbatch == b.microbatches-1 {
			back.commit(b.step)
		}
	}
	if len(rings) != 2 {
		t.Error("the rank that came back got all batches in one kind of memory")
	}
}

func inode(t *testing.T, fd int) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}
