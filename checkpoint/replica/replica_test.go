package replica_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"millrace/checkpoint"
	"millrace/checkpoint/disk"
	"millrace/checkpoint/disk/disktest"
	"millrace/checkpoint/replica"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dir = "run/journal"

func config(d *disk.Disk) checkpoint.Config {
	return checkpoint.Config{Dir: dir, CreatedBy: "test", Disk: d}
}

// failer is a *testing.T or a *rapid.T.
type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func must(t failer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t failer, d *disk.Disk) *checkpoint.Store {
	t.Helper()
	s, err := checkpoint.Open(config(d))
	must(t, err)
	return s
}

// dump returns everything in the store.
func dump(t failer, s *checkpoint.Store) string {
	t.Helper()
	var b bytes.Buffer
	must(t, s.Dump(&b, checkpoint.DumpOptions{}))
	return b.String()
}

// verified closes a copy, opens it as a store, and returns everything in it.
func verified(t failer, d *disk.Disk) string {
	t.Helper()
	s := open(t, d)
	report, err := s.Verify()
	must(t, err)
	if !report.OK() {
		t.Fatalf("the copy does not verify: %v", report.Problems)
	}
	text := dump(t, s)
	must(t, s.Close())
	return text
}

// same fails with the first lines that differ between a copy and its store.
func same(t failer, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	is, should := strings.Split(got, "\n"), strings.Split(want, "\n")
	n := 0
	for is[n] == should[n] {
		n++
	}
	t.Fatalf("line %d of %d (%d expected) of the copy is\n%s\nwant\n%s", n, len(is), len(should), is[n], should[n])
}

// queue is a feed that keeps its batches.
type queue struct {
	next    uint64
	batches [][]byte
}

func (q *queue) Batch(number uint64, batch []byte) {
	if number != q.next {
		panic(fmt.Sprintf("batch %d, want %d", number, q.next))
	}
	q.next++
	q.batches = append(q.batches, bytes.Clone(batch))
}

// follow begins a copy of a store. The copy is whole when it returns.
func follow(t failer, s *checkpoint.Store, d *disk.Disk, size int) (*replica.Replica, *queue) {
	t.Helper()
	q := &queue{}
	image, err := s.Follow(q)
	must(t, err)
	q.next = image.Number() + 1
	r, err := replica.Begin(config(d))
	must(t, err)
	for {
		part, err := image.Next(size)
		must(t, err)
		if part == nil {
			break
		}
		must(t, r.Absorb(part))
	}
	must(t, image.Close())
	must(t, r.Complete())
	return r, q
}

func (q *queue) deliver(t failer, r *replica.Replica) {
	t.Helper()
	for _, b := range q.batches {
		must(t, r.Absorb(b))
	}
	q.batches = nil
}

// writer makes a random history of a store.
type writer struct {
	rng  *rand.Rand
	s    *checkpoint.Store
	step uint64
}

func (w *writer) body(most int) []byte {
	b := make([]byte, w.rng.IntN(most))
	for i := range b {
		b[i] = byte(w.rng.Uint32())
	}
	return b
}

// write makes one random change.
func (w *writer) write(t failer) {
	t.Helper()
	first, last := w.s.Bounds()
	switch w.rng.IntN(8) {
	case 0:
		newest, ok, err := w.s.NewestSnapshot()
		must(t, err)
		if !ok || last >= newest.Index {
			must(t, w.s.SaveSnapshot(last, checkpoint.NoStep, w.body(3000)))
		}
	case 1:
		newest, ok, err := w.s.NewestSnapshot()
		must(t, err)
		if ok {
			must(t, w.s.Truncate(first+w.rng.Uint64N(newest.Index+2-min(first, newest.Index+1))))
		}
	case 2:
		must(t, w.s.DropSnapshots(w.rng.Uint64N(last+2)))
	case 3:
		must(t, w.s.DropPlans("train", w.rng.Uint64N(w.step+1)))
	case 4:
		key := checkpoint.StepKey{Stream: "train", Attempt: 1, Step: w.step}
		entry := checkpoint.IndexEntry{Key: key, Body: w.body(100)}
		_, err := w.s.Commit(checkpoint.Commit{LedgerIndex: []checkpoint.IndexEntry{entry}})
		must(t, err)
	default:
		c := checkpoint.Commit{}
		for range w.rng.IntN(4) {
			c.Records = append(c.Records, checkpoint.Record{Step: int64(w.step), Kind: 3, Body: w.body(5000)})
		}
		if w.rng.IntN(300) == 0 { // Pebble takes the bytes of a batch that is large for a memtable
			c.Records = append(c.Records, checkpoint.Record{Step: int64(w.step), Kind: 4, Body: w.body(6 << 20)})
		}
		if w.rng.IntN(2) == 0 {
			w.step++
			key := checkpoint.StepKey{Stream: "train", Attempt: 1 + uint32(w.step/40), Step: w.step}
			c.Plans = []checkpoint.Plan{{Key: key, Body: w.body(9000), Digest: w.body(60)}}
		}
		_, err := w.s.Commit(c)
		must(t, err)
	}
}

// TestACopyIsEqual: after any history, with copies that begin and end at any moment, the newest copy has the values of
// its store and its ends.
func TestACopyIsEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &writer{rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))}
		leader, copied := disktest.NewMemory(), disktest.NewMemory()
		w.s = open(t, leader)
		var r *replica.Replica
		var q *queue
		for range rapid.IntRange(0, 80).Draw(t, "acts") {
			switch n := w.rng.IntN(20); {
			case n == 0 && r != nil: // the follower is lost
				w.s.Unfollow(q)
				must(t, r.Close())
				r = nil
			case n == 1 && r != nil && len(q.batches) == 0: // or loses power, with everything that it acknowledged
				w.s.Unfollow(q)
				cut := disktest.Crash(copied, w.rng.IntN(101), w.rng.Uint64())
				must(t, r.Close())
				r, copied = nil, cut
				same(t, verified(t, copied), dump(t, w.s))
			case n < 4 && r == nil:
				r, q = follow(t, w.s, copied, 1+w.rng.IntN(20000))
			case n < 8 && r != nil:
				q.deliver(t, r)
			default:
				w.write(t)
			}
		}
		if r == nil {
			r, q = follow(t, w.s, copied, 4096)
		}
		w.write(t)
		q.deliver(t, r)
		_, last := w.s.Bounds()
		id := r.ID()
		if r.Last() != last || id == "" || id == w.s.ID() {
			t.Fatalf("copy %q ends at record %d, store %q at %d", id, r.Last(), w.s.ID(), last)
		}
		must(t, r.Close())
		want := dump(t, w.s)
		w.s.Unfollow(q)
		must(t, w.s.Close())
		same(t, verified(t, copied), want)
		s := open(t, copied)
		first, _ := s.Bounds()
		must(t, s.Replay(first, func(checkpoint.Record) error { return nil }))
		if s.ID() != id {
			t.Fatalf("the copy %s calls itself %s", id, s.ID())
		}
		must(t, s.Close())
	})
}

// cut is the disk of a follower after a power cut, and the batches that it had acknowledged.
type cut struct {
	disk         *disk.Disk
	acked, begun int // indices into history.states
	where        string
}

// scissors takes a cut before every file operation of a follower.
type scissors struct {
	disk *disk.Disk

	mu           sync.Mutex
	acked, begun int
	cuts         []cut
}

func (x *scissors) String() string { return "scissors" }

// MaybeError implements errorfs.Injector.
func (x *scissors) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpRename, errorfs.OpCreate,
		errorfs.OpRemove, errorfs.OpRemoveAll, errorfs.OpReuseForWrite, errorfs.OpLink, errorfs.OpMkdirAll:
	default:
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, kept := range []int{0, 50, 100} {
		x.cuts = append(x.cuts, cut{disktest.Crash(x.disk, kept, uint64(len(x.cuts))), x.acked, x.begun,
			fmt.Sprintf("before %v of %s, %d %% kept", op.Kind, op.Path, kept)})
	}
	return nil
}

func (x *scissors) do(t *testing.T, f func() error) {
	t.Helper()
	x.mu.Lock()
	x.begun++
	x.mu.Unlock()
	must(t, f())
	x.mu.Lock()
	x.acked = x.begun
	x.mu.Unlock()
}

// TestAPowerCutOfAFollower cuts the power of a follower before every sync, rename, create and remove. The follower has
// a journal of its own, which two copies replace, one after the other. Each cut leaves the old journal or the copy,
// with every batch that was acknowledged.
func TestAPowerCutOfAFollower(t *testing.T) {
	w := &writer{rng: rand.New(rand.NewPCG(7, 7)), s: open(t, disktest.NewMemory())}
	x := &scissors{disk: disktest.NewMemory()}
	watched := disk.New(errorfs.Wrap(x.disk.FS(), x), 0)
	own := open(t, x.disk)
	_, err := own.Append(checkpoint.Record{Step: checkpoint.NoStep, Body: []byte("of an earlier run")})
	must(t, err)
	states := []string{dump(t, own)} // after each act of the follower
	must(t, own.Close())
	for range 25 {
		w.write(t)
	}
	for range 2 {
		var r *replica.Replica
		q := &queue{}
		image, err := w.s.Follow(q)
		must(t, err)
		q.next = image.Number() + 1
		states = append(states, dump(t, w.s))
		x.do(t, func() error {
			if r, err = replica.Begin(config(watched)); err != nil {
				return err
			}
			for {
				part, err := image.Next(4096)
				if err != nil || part == nil {
					return errors.Join(err, image.Close(), r.Complete())
				}
				if err := r.Absorb(part); err != nil {
					return err
				}
			}
		})
		for range 12 {
			before := len(q.batches)
			w.write(t)
			if len(q.batches) == before {
				continue // nothing to drop
			}
			states = append(states, dump(t, w.s))
			b := q.batches[before]
			x.do(t, func() error { return r.Absorb(b) })
		}
		w.s.Unfollow(q)
		must(t, r.Close())
	}
	must(t, w.s.Close())
	t.Logf("%d power cuts", len(x.cuts))
	if len(x.cuts) < 250 {
		t.Fatalf("only %d power cuts: the scissors do not see the writes", len(x.cuts))
	}
	for _, c := range x.cuts {
		t.Run(c.where, func(t *testing.T) {
			got := verified(t, c.disk)
			if got != states[c.acked] && got != states[min(c.begun, len(states)-1)] {
				t.Fatalf("after %d acts, %d begun, it has\n%s", c.acked, c.begun, got)
			}
		})
	}
}

// TestADamagedBatchIsRefused: a flipped bit in a batch changes nothing in the copy, whatever the wire let through.
func TestADamagedBatchIsRefused(t *testing.T) {
	w := &writer{rng: rand.New(rand.NewPCG(3, 3)), s: open(t, disktest.NewMemory())}
	copied := disktest.NewMemory()
	r, q := follow(t, w.s, copied, 4096)
	defer r.Close()
	for range 8 {
		_, err := w.s.Append(checkpoint.Record{Step: 1, Kind: 2, Body: []byte("a record of some bytes")})
		must(t, err)
	}
	must(t, r.Absorb(bytes.Clone(q.batches[0])))
	for name, wrong := range map[string][]byte{
		"a gap":            q.batches[2],
		"a repeat":         q.batches[0],
		"an empty batch":   {},
		"a batch cut off":  q.batches[1][:len(q.batches[1])-3],
		"a batch cut at 5": q.batches[1][:5],
	} {
		if err := r.Absorb(bytes.Clone(wrong)); !errors.Is(err, checkpoint.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	const head = 12 // sequence number, which Pebble sets, and count
	refused := 0
	for bit := head * 8; bit < len(q.batches[1])*8; bit++ {
		wrong := bytes.Clone(q.batches[1])
		wrong[bit/8] ^= 1 << (bit % 8)
		if err := r.Absorb(wrong); err == nil {
			t.Fatalf("a flip of bit %d is taken", bit)
		}
		refused++
	}
	q.batches = q.batches[1:]
	q.deliver(t, r)
	must(t, r.Close())
	same(t, verified(t, copied), dump(t, w.s))
	t.Logf("%d damaged batches refused", refused)
	w.s.Unfollow(q)
	must(t, w.s.Close())
}

// TestTheFolderOfACopyIsLocked: a copy replaces no store that another call has open.
func TestTheFolderOfACopyIsLocked(t *testing.T) {
	s := open(t, disktest.NewMemory())
	defer s.Close()
	cfg := checkpoint.Config{Dir: t.TempDir() + "/journal", CreatedBy: "test"}
	mine, err := checkpoint.Open(cfg)
	must(t, err)
	r, err := replica.Begin(cfg)
	must(t, err)
	defer r.Close()
	if err := r.Complete(); !errors.Is(err, checkpoint.ErrLocked) {
		t.Errorf("complete a copy of an open store: %v", err)
	}
	must(t, mine.Close())
	if id, err := replica.ID(cfg); err != nil || id != mine.ID() {
		t.Errorf("the store is %q (%v), it was %q", id, err, mine.ID())
	}
}
