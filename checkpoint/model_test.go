package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"millrace/checkpoint/disk/disktest"
)

// model keeps the content of a store in maps. Every read of a Store must agree with the model.
type model struct {
	first, last  uint64
	records      map[uint64]Record
	snapshots    map[uint64]Snapshot
	entries      map[StepKey]Entry
	plans        map[StepKey][]byte
	indexEntries map[StepKey][]byte
}

func newModel() *model {
	return &model{
		first:        1,
		records:      map[uint64]Record{},
		snapshots:    map[uint64]Snapshot{},
		entries:      map[StepKey]Entry{},
		plans:        map[StepKey][]byte{},
		indexEntries: map[StepKey][]byte{},
	}
}

func (m *model) newest() (Snapshot, bool) {
	if len(m.snapshots) == 0 {
		return Snapshot{}, false
	}
	return m.snapshots[slices.Max(slices.Collect(maps.Keys(m.snapshots)))], true
}

func (m *model) commit(c Commit) error {
	for _, p := range c.Plans {
		if e, ok := m.entries[p.Key]; ok && !e.sameContent(p.entry(0)) {
			return ErrConflict
		}
	}
	for _, r := range c.Records {
		m.last++
		r.Index = m.last
		m.records[m.last] = r
	}
	for _, p := range c.Plans {
		if _, ok := m.entries[p.Key]; !ok {
			m.entries[p.Key] = p.entry(m.last)
		}
		m.plans[p.Key] = p.Body
	}
	for _, p := range c.LedgerIndex {
		m.indexEntries[p.Key] = p.Body
	}
	return nil
}

// clone returns an independent copy.
func (m *model) clone() *model {
	return &model{
		m.first,
		m.last,
		maps.Clone(m.records),
		maps.Clone(m.snapshots),
		maps.Clone(m.entries),
		maps.Clone(m.plans),
		maps.Clone(m.indexEntries),
	}
}

// differs compares everything that can be read.
func (m *model) differs(s *Store) error {
	first, last := s.Bounds()
	if first != m.first || last != m.last {
		return errors.New("bounds differ")
	}
	next := first
	err := s.Replay(first, func(r Record) error {
		want := m.records[next]
		if r.Index != next || r.Step != want.Step || r.Kind != want.Kind || !bytes.Equal(r.Body, want.Body) {
			return errors.New("a record differs")
		}
		next++
		return nil
	})
	if err != nil {
		return err
	}
	if next != last+1 {
		return errors.New("replay ended early")
	}
	want, wantOK := m.newest()
	got, ok, err := s.NewestSnapshot()
	if err != nil || ok != wantOK || got.Index != want.Index || got.Step != want.Step ||
		!bytes.Equal(got.Body, want.Body) {
		return errors.Join(err, errors.New("newest snapshot differs"))
	}
	seen := map[StepKey]Entry{}
	if err := s.Ledger(StepKey{}, StepKey{}, func(e Entry) error { seen[e.Key] = e; return nil }); err != nil {
		return err
	}
	if !reflect.DeepEqual(seen, m.entries) {
		return errors.New("ledger differs")
	}
	for k := range m.entries {
		plan, kept, err := s.Plan(k)
		if want, wantKept := m.plans[k]; err != nil || kept != wantKept || !bytes.Equal(plan, want) {
			return errors.Join(err, errors.New("plan differs"))
		}
	}
	return m.indexEntriesDiffer(s)
}

// indexEntriesDiffer looks every index entry up.
func (m *model) indexEntriesDiffer(s *Store) error {
	for k, want := range m.indexEntries {
		got, ok, err := s.IndexEntryBefore(k)
		if err != nil || !ok || got.Key != k || !bytes.Equal(got.Body, want) {
			return errors.Join(err, errors.New("an index entry differs"))
		}
	}
	return nil
}

func drawCommit(t *rapid.T) Commit {
	bytesOf := func(label string, most int) []byte {
		b := rapid.SliceOfN(rapid.Byte(), 1, 24).Draw(t, label)
		return bytes.Repeat(b, rapid.IntRange(1, most).Draw(t, label+" repeated"))
	}
	var c Commit
	for range rapid.IntRange(0, 3).Draw(t, "records") {
		c.Records = append(c.Records, Record{
			Index: 77, // ignored
			Step:  rapid.Int64Range(-1, 20).Draw(t, "step"),
			Kind:  rapid.Byte().Draw(t, "kind"),
			Body:  bytesOf("body", 400),
		})
	}
	steps := rapid.SliceOfNDistinct(rapid.Uint64Range(0, 12), 0, 2, rapid.ID).Draw(t, "plans")
	for _, step := range steps {
		k := StepKey{
			rapid.SampledFrom([]string{"train", "eval", "trainer"}).Draw(t, "stream"),
			rapid.Uint32Range(0, 2).Draw(t, "attempt"),
			step,
		}
		c.Plans = append(c.Plans, Plan{Key: k, Body: bytesOf("plan", 400), Digest: bytesOf("digest", 4)})
		if rapid.Bool().Draw(t, "indexEntry") {
			c.LedgerIndex = append(c.LedgerIndex, IndexEntry{Key: k, Body: bytesOf("indexEntry", 4)})
		}
	}
	return c
}

// TestModel runs random histories against the store and the model.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		disk, m := disktest.NewMemory(), newModel()
		s, err := Open(memConfig(disk))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		same := func(t *rapid.T, got, want error) {
			if !errors.Is(got, want) {
				t.Fatalf("got error %v, want %v", got, want)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"commit": func(t *rapid.T) {
				c := drawCommit(t)
				want := m.commit(c)
				last, err := s.Commit(c)
				same(t, err, want)
				if err == nil && last != m.last {
					t.Fatalf("commit returned %d, want %d", last, m.last)
				}
			},
			"again": func(t *rapid.T) { // a step derived again may be sealed again
				if len(m.plans) == 0 {
					return // nothing to seal again yet
				}
				byBytes := func(a, b StepKey) int { return bytes.Compare(stepKey(0, a), stepKey(0, b)) }
				k := rapid.SampledFrom(slices.SortedFunc(maps.Keys(m.plans), byBytes)).Draw(t, "key")
				c := Commit{Plans: []Plan{{Key: k, Body: m.plans[k], Digest: m.entries[k].Digest}}}
				_, err := s.Commit(c)
				same(t, err, m.commit(c))
			},
			"snapshot": func(t *rapid.T) {
				snap := Snapshot{
					Index: rapid.Uint64Range(0, m.last+1).Draw(t, "index"),
					Step:  rapid.Int64Range(-1, 9).Draw(t, "step"),
					Body:  []byte("state"),
				}
				var want error
				if newest, ok := m.newest(); snap.Index > m.last || ok && snap.Index < newest.Index {
					want = ErrNotCovered
				} else {
					m.snapshots[snap.Index] = snap
				}
				same(t, s.SaveSnapshot(snap.Index, snap.Step, snap.Body), want)
			},
			"truncate": func(t *rapid.T) {
				before := rapid.Uint64Range(0, m.last+2).Draw(t, "before")
				var want error
				if newest, ok := m.newest(); before <= m.first {
				} else if !ok || before > newest.Index+1 {
					want = ErrNotCovered
				} else {
					m.first = before
					maps.DeleteFunc(m.records, func(i uint64, _ Record) bool { return i < before })
				}
				same(t, s.Truncate(before), want)
			},
			"drop plans": func(t *rapid.T) {
				stream := rapid.SampledFrom([]string{"train", "eval"}).Draw(t, "stream")
				before := rapid.Uint64Range(0, 13).Draw(t, "before")
				maps.DeleteFunc(m.plans, func(k StepKey, _ []byte) bool {
					return k.Stream == stream && k.Step < before
				})
				same(t, s.DropPlans(stream, before), nil)
			},
			"drop snapshots": func(t *rapid.T) {
				before := rapid.Uint64Range(0, m.last+1).Draw(t, "before")
				newest, _ := m.newest()
				maps.DeleteFunc(m.snapshots, func(i uint64, _ Snapshot) bool { return i < before && i < newest.Index })
				same(t, s.DropSnapshots(before), nil)
			},
			"snapshot before": func(t *rapid.T) {
				index := rapid.Uint64Range(0, m.last).Draw(t, "index")
				got, ok, err := s.SnapshotBefore(index)
				same(t, err, nil)
				want, wantOK := Snapshot{}, false
				for i, snap := range m.snapshots {
					if i <= index && (!wantOK || i > want.Index) {
						want, wantOK = snap, true
					}
				}
				if ok != wantOK || got.Index != want.Index {
					t.Fatalf("snapshot before %d: got %d, %v, want %d, %v", index, got.Index, ok, want.Index, wantOK)
				}
			},
			"compact": func(t *rapid.T) {
				same(t, s.Compact(context.Background()), nil)
			},
			"entry before": func(t *rapid.T) {
				k := StepKey{
					rapid.SampledFrom([]string{"train", "eval", "trainer"}).Draw(t, "stream"),
					rapid.Uint32Range(0, 2).Draw(t, "attempt"),
					rapid.Uint64Range(0, 13).Draw(t, "step"),
				}
				got, ok, err := s.EntryBefore(k)
				same(t, err, nil)
				var want StepKey
				for o := range m.entries {
					if o.Stream == k.Stream && bytes.Compare(stepKey(0, o), stepKey(0, k)) <= 0 &&
						(want == (StepKey{}) || bytes.Compare(stepKey(0, o), stepKey(0, want)) > 0) {
						want = o
					}
				}
				if got.Key != want || ok != (want != (StepKey{})) {
					t.Fatalf("entry before %s: got %s, %v, want %s", k, got.Key, ok, want)
				}
			},
			"reopen": func(t *rapid.T) {
				same(t, s.Close(), nil)
				if s, err = Open(memConfig(disk)); err != nil {
					t.Fatal(err)
				}
			},
			"power cut": func(t *rapid.T) {
				cut := disktest.Crash(disk, rapid.IntRange(0, 100).Draw(t, "kept"), rapid.Uint64().Draw(t, "seed"))
				same(t, s.Close(), nil)
				disk = cut
				if s, err = Open(memConfig(disk)); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				if err := m.differs(s); err != nil {
					t.Fatal(err)
				}
			},
		})
		if r, err := s.Verify(); err != nil || !r.OK() || int(r.Plans) != len(m.plans) ||
			int(r.Records) != len(m.records) {
			t.Fatalf("verify: %+v, %v", r, err)
		}
	})
}
