package checkpoint

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"millrace/checkpoint/disk"
	"millrace/checkpoint/disk/disktest"
)

// readAll calls every read method, and returns the errors.
func readAll(s *Store, steps uint64) error {
	first, _ := s.Bounds()
	errs := []error{
		s.Replay(first, func(Record) error { return nil }),
		s.Ledger(StepKey{}, StepKey{}, func(Entry) error { return nil }),
	}
	_, _, err := s.NewestSnapshot()
	errs = append(errs, err)
	for step := uint64(0); step <= steps; step++ {
		_, _, err := s.Plan(key(step))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// TestFlippedBitInValue damages values of each kind so that Pebble's checksums still agree: it flips every bit,
// shortens them, and stores them under other keys. The store's own checksums must notice.
func TestFlippedBitInValue(t *testing.T) {
	s := mustOpen(t, disktest.NewMemory())
	defer mustClose(t, s)
	steps(t, s, 0, 3, 10)
	if err := s.SaveSnapshot(2, 1, []byte("state")); err != nil {
		t.Fatal(err)
	}
	victims := map[string][]byte{
		"journal record 2":           indexKey(tagRecord, 2),
		"snapshot of record 2":       indexKey(tagSnapshot, 2),
		"ledger entry train/0/1":     stepKey(tagEntry, key(1)),
		"plan train/0/1":             stepKey(tagPlan, key(1)),
		"format page":                {tagFormat},
		"journal record 2 truncated": indexKey(tagRecord, 2),
		"plan train/0/1 swapped":     stepKey(tagPlan, key(1)),
	}
	for name, k := range victims {
		good, err := s.db.get(k)
		if err != nil || good == nil {
			t.Fatal(name, err)
		}
		check := func(bad []byte) {
			t.Helper()
			if err := s.db.pebble.Set(k, bad, pebble.NoSync); err != nil {
				t.Fatal(err)
			}
			where, _, _ := strings.Cut(name, " tr")
			where, _, _ = strings.Cut(where, " sw")
			says := func(err error, word string) bool { return strings.Contains(err.Error(), word) }
			if err := readAll(s, 3); name != "format page" &&
				(!errors.Is(err, ErrCorrupt) || !says(err, where) || !says(err, memDir) || !says(err, "restore")) {
				t.Fatalf("%s: read says %v; want ErrCorrupt, place, directory and cure", name, err)
			}
			if r, err := s.Verify(); err != nil || r.OK() || !strings.Contains(strings.Join(r.Problems, "\n"), where) {
				t.Fatalf("%s: verify says %v, %v", name, r.Problems, err)
			}
		}
		switch {
		case strings.HasSuffix(name, "truncated"):
			for n := range good {
				check(good[:n])
			}
		case strings.HasSuffix(name, "swapped"):
			other, err := s.db.get(stepKey(tagPlan, key(2)))
			if err != nil {
				t.Fatal(err)
			}
			check(other)
		default:
			for bit := range len(good) * 8 {
				bad := append([]byte(nil), good...)
				bad[bit/8] ^= 1 << (bit % 8)
				check(bad)
			}
		}
		if err := s.db.pebble.Set(k, good, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	verified(t, s)
}

// TestWrongStructure breaks the invariants of docs/bytes-on-disk.md with values whose checksums are right.
func TestWrongStructure(t *testing.T) {
	for name, c := range map[string]struct {
		breakIt func(t *testing.T, s *Store)
		says    string
		opens   bool // whether Open still accepts it
	}{
		"hole": {func(t *testing.T, s *Store) { drop(t, s, indexKey(tagRecord, 3)) }, "it follows record 2", true},
		"lost head": {func(t *testing.T, s *Store) {
			drop(t, s, indexKey(tagRecord, 1))
			drop(t, s, indexKey(tagSnapshot, 2))
		}, "no snapshot covers", false},
		"lost tail": {func(t *testing.T, s *Store) {
			for i := uint64(2); i <= 6; i++ {
				drop(t, s, indexKey(tagRecord, i))
			}
		}, "it ends at record 1, but record 6 was acknowledged", false},
		"lost tail and witness": {func(t *testing.T, s *Store) {
			for i := uint64(2); i <= 6; i++ {
				drop(t, s, indexKey(tagRecord, i))
			}
			s.journal.witness(0)
		}, "before the newest snapshot", false},
		"lost entry": {func(t *testing.T, s *Store) {
			drop(t, s, stepKey(tagEntry, key(2)))
		}, "it has no ledger entry", true},
		"other plan": {func(t *testing.T, s *Store) {
			k := stepKey(tagPlan, key(2))
			put(t, s, k, encodeBare(k, []byte("another")))
		}, "its ledger entry was written for another plan", true},
		"entry from the future": {func(t *testing.T, s *Store) {
			k := stepKey(tagEntry, key(9))
			put(t, s, k, encodeEntry(k, Entry{Index: 99}))
		}, "sealed at record 99", true},
		"no format page": {func(t *testing.T, s *Store) { drop(t, s, []byte{tagFormat}) }, "format page", false},
		"unknown key":    {func(t *testing.T, s *Store) { put(t, s, []byte{77}, nil) }, "no key of this store", true},
	} {
		t.Run(name, func(t *testing.T) {
			disk := disktest.NewMemory()
			s := mustOpen(t, disk)
			steps(t, s, 0, 6, 10)
			if err := s.SaveSnapshot(2, 1, nil); err != nil {
				t.Fatal(err)
			}
			c.breakIt(t, s)
			mustClose(t, s)
			s, err := Open(memConfig(disk))
			if c.opens != (err == nil) || err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatalf("open: %v, want it to open: %v", err, c.opens)
			}
			if err == nil {
				mustClose(t, s)
			}
			s, err = OpenReadOnly(memConfig(disk))
			if name == "no format page" {
				if !errors.Is(err, ErrCorrupt) {
					t.Fatalf("open for reading: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer mustClose(t, s)
			r, err := s.Verify()
			if err != nil || !strings.Contains(strings.Join(r.Problems, "\n"), c.says) {
				t.Errorf("verify says %q, %v, want %q", r.Problems, err, c.says)
			}
			if name == "hole" {
				if err := s.Replay(1, func(Record) error { return nil }); !errors.Is(err, ErrCorrupt) ||
					!strings.Contains(err.Error(), "journal record 3") {
					t.Errorf("replay over a hole: %v", err)
				}
			}
		})
	}
}

func drop(t *testing.T, s *Store, k []byte) {
	t.Helper()
	if err := s.db.pebble.Delete(k, pebble.Sync); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, s *Store, k, v []byte) {
	t.Helper()
	if err := s.db.pebble.Set(k, v, pebble.Sync); err != nil {
		t.Fatal(err)
	}
}

// TestFlippedBitInFile flips bits in the files of a closed store. Each flip is reported or changes no read, and none
// causes a panic.
func TestFlippedBitInFile(t *testing.T) {
	const n = 12
	disk, m := disktest.NewMemory(), newModel()
	s := mustOpen(t, disk)
	for step := uint64(0); step < n; step++ {
		c := stepCommit(step, 300)
		_ = m.commit(c)
		if _, err := s.Commit(c); err != nil {
			t.Fatal(err)
		}
		if step == n/2 {
			if err := s.db.pebble.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustClose(t, s)
	rng := rand.New(rand.NewPCG(1, 2))
	reported := 0
	for range 400 {
		bad := disktest.Crash(disk, 0, 0)
		name := flip(t, bad, rng)
		s, err := OpenReadOnly(memConfig(bad))
		if err != nil {
			reported++
			continue
		}
		r, err := s.Verify()
		if err != nil {
			t.Fatal(err)
		}
		if !r.OK() {
			reported++
		} else if err := m.differs(s); err != nil {
			t.Errorf("a flipped bit in %s changed a read and is not reported: %v", name, err)
		}
		mustClose(t, s)
	}
	if reported < 100 {
		t.Errorf("only %d of 400 flips were reported: the flips do not hit", reported)
	}
}

// flip flips one bit of one of Pebble's files that are not empty.
func flip(t *testing.T, d *disk.Disk, rng *rand.Rand) (name string) {
	t.Helper()
	names, err := d.FS().List(memDir)
	if err != nil {
		t.Fatal(err)
	}
	for {
		name = names[rng.IntN(len(names))]
		path := d.FS().PathJoin(memDir, name)
		buf, err := disktest.Memory(d).UnsafeGetFileDataBuffer(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(buf) > 0 {
			buf[rng.IntN(len(buf))] ^= 1 << rng.IntN(8)
			return name
		}
	}
}
