package checkpoint

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"millrace/checkpoint/disk"
	"millrace/checkpoint/disk/disktest"
)

// cut is the disk as a power cut left it, and the operations that had been acknowledged by then.
type cut struct {
	disk  *disk.Disk
	acked int // operations that had returned
	begun int // operations that had been started: acked or acked+1
	where string
}

// scissors wraps a memory disk and takes a cut before every file operation.
type scissors struct {
	disk *disk.Disk

	mu           sync.Mutex
	acked, begun int
	cuts         []cut
}

func (x *scissors) String() string { return "scissors" }

func (x *scissors) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileSync,
		errorfs.OpFileSyncData,
		errorfs.OpFileSyncTo,
		errorfs.OpFileWrite,
		errorfs.OpFileWriteAt,
		errorfs.OpRename,
		errorfs.OpCreate,
		errorfs.OpRemove,
		errorfs.OpRemoveAll,
		errorfs.OpReuseForWrite,
		errorfs.OpLink,
		errorfs.OpMkdirAll:
	default:
		return nil
	}
	x.cut(fmt.Sprintf("before %v of %s", op.Kind, op.Path))
	return nil
}

// cut takes three copies of the disk: with none, half and all of the unsynced data.
func (x *scissors) cut(where string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, kept := range []int{0, 50, 100} {
		seed := uint64(len(x.cuts))
		x.cuts = append(x.cuts,
			cut{disktest.Crash(x.disk, kept, seed), x.acked, x.begun, fmt.Sprintf("%s, %d %% kept", where, kept)})
	}
}

func (x *scissors) do(t *testing.T, f func() error) {
	t.Helper()
	x.mu.Lock()
	x.begun++
	x.mu.Unlock()
	if err := f(); err != nil {
		t.Fatal(err)
	}
	x.mu.Lock()
	x.acked++
	x.mu.Unlock()
}

// TestCrashAnywhere cuts the power before every write, sync, rename, link, create and remove of a history. The history
// has every operation of a store: creation, commits, snapshots, flushes, truncations, dropped plans and snapshots,
// compactions and reopenings. An operation that had returned must be in the store. An operation that had not returned
// must be in the store as a whole or not at all. The store must verify.
func TestCrashAnywhere(t *testing.T) {
	x := &scissors{disk: disktest.NewMemory()}
	watched := disk.New(errorfs.Wrap(x.disk.FS(), x), 0)
	history := []*model{newModel()} // history[n]: after n operations
	var s *Store
	act := func(onModel func(*model), onStore func() error) {
		m := history[len(history)-1].clone()
		onModel(m)
		history = append(history, m)
		x.do(t, onStore)
	}
	reopen := func() {
		act(func(*model) {}, func() (err error) {
			if s != nil {
				if err := s.Close(); err != nil {
					return err
				}
			}
			s, err = Open(memConfig(watched))
			return err
		})
	}
	reopen()
	for step := uint64(1); step <= 18; step++ {
		c := stepCommit(step, int(step*step*60))
		if step%5 == 0 {
			c.LedgerIndex = []IndexEntry{{Key: key(step), Body: body(step, 200)}}
		}
		act(func(m *model) { _ = m.commit(c) }, func() error { _, err := s.Commit(c); return err })
		_, last := s.Bounds()
		switch step % 6 {
		case 2:
			act(func(m *model) { m.snapshots[last-1] = Snapshot{last - 1, int64(step), []byte("state")} },
				func() error { return s.SaveSnapshot(last-1, int64(step), []byte("state")) })
		case 3:
			if step == 9 {
				act(func(*model) {}, func() error { return s.Compact(t.Context()) })
				act(func(m *model) {
					newest, _ := m.newest()
					maps.DeleteFunc(m.snapshots, func(i uint64, _ Snapshot) bool { return i < newest.Index })
				}, func() error { return s.DropSnapshots(last) })
			} else if err := s.db.pebble.Flush(); err != nil {
				t.Fatal(err)
			}
		case 4:
			act(func(m *model) {
				for i := m.first; i < last-2; i++ {
					delete(m.records, i)
				}
				m.first = last - 2
			}, func() error { return s.Truncate(last - 2) })
		case 5:
			act(func(m *model) {
				for k := range m.plans {
					if k.Step < step-3 {
						delete(m.plans, k)
					}
				}
			}, func() error { return s.DropPlans("train", step-3) })
		case 0:
			reopen()
		}
	}
	mustClose(t, s)
	x.cut("at the end")
	t.Logf("%d power cuts in %d operations", len(x.cuts), x.acked)
	if len(x.cuts) < 500 {
		t.Fatalf("only %d power cuts: the scissors do not see the writes", len(x.cuts))
	}
	for _, c := range x.cuts {
		survives(t, c, history)
	}
}

func survives(t *testing.T, c cut, history []*model) {
	t.Helper()
	s, err := Open(memConfig(c.disk))
	if err != nil {
		t.Fatalf("%s: %v", c.where, err)
	}
	defer mustClose(t, s)
	old, begun := history[c.acked].differs(s), history[min(c.begun, len(history)-1)].differs(s)
	if old != nil && begun != nil {
		t.Fatalf("%s: with %d operations acknowledged and %d begun the store holds neither: %v; %v", c.where, c.acked,
			c.begun, old, begun)
	}
	if r, err := s.Verify(); err != nil || !r.OK() {
		t.Fatalf("%s: %v %v", c.where, err, r.Problems)
	}
	if _, err := s.Append(Record{Step: NoStep, Body: []byte("life goes on")}); err != nil {
		t.Fatalf("%s: append after the crash: %v", c.where, err)
	}
}
