package checkpoint

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"millrace/checkpoint/disk/disktest"
)

// TestLayout pins the bytes of docs/bytes-on-disk.md.
func TestLayout(t *testing.T) {
	k := StepKey{"ev", 0x01020304, 0x05060708090a0b0c}
	record, snapshot := indexKey(tagRecord, 258), indexKey(tagSnapshot, 2)
	entry, plan := stepKey(tagEntry, k), stepKey(tagPlan, k)
	for _, c := range []struct {
		name       string
		key, value []byte
		want       string
	}{
		{"format", []byte{tagFormat}, encodeFormat([]byte{tagFormat}, 1, "v1"), "01|bb621328010000007631"},
		{"record", record, encodeRecord(record, Record{Step: -1, Kind: 7, Body: []byte{0xaa}}),
			"020000000000000102|b0c1329407ffffffffffffffffaa"},
		{"snapshot", snapshot, encodeSnapshot(snapshot, Snapshot{Step: 3, Body: []byte{0xbb}}),
			"030000000000000002|399fed790300000000000000bb"},
		{"entry", entry, encodeEntry(entry, Entry{Index: 5, PlanSize: 6, PlanCRC: 7, Digest: []byte{0xcc}}),
			"046576000102030405060708090a0b0c|10fd19bb05000000000000000600000007000000cc"},
		{"plan", plan, encodeBare(plan, []byte{0xdd}), "056576000102030405060708090a0b0c|260c0621dd"},
	} {
		if got := hex.EncodeToString(c.key) + "|" + hex.EncodeToString(c.value); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestStepKeysSortAndParse(t *testing.T) {
	keys := []StepKey{
		{"a", 0, 0},
		{"a", 0, 256},
		{"a", 1, 1},
		{"a", 256, 0},
		{"a\x01", 0, 0},
		{"aa", 0, 0},
		{"b", 1<<32 - 1, 1<<64 - 1},
	}
	for i, k := range keys {
		b := stepKey(tagEntry, k)
		if got, ok := parseStepKey(b); !ok || got != k {
			t.Errorf("%v came back as %v, %v", k, got, ok)
		}
		if i > 0 && bytes.Compare(stepKey(tagEntry, keys[i-1]), b) >= 0 {
			t.Errorf("%v does not sort before %v", keys[i-1], k)
		}
	}
}

func TestRefusals(t *testing.T) {
	s := mustOpen(t, disktest.NewMemory())
	defer mustClose(t, s)
	steps(t, s, 1, 4, 10)
	if err := s.SaveSnapshot(3, 3, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Truncate(3); err != nil {
		t.Fatal(err)
	}
	commit := func(c Commit) error { _, err := s.Commit(c); return err }
	seal := func(plans ...Plan) error { return commit(Commit{Plans: plans}) }
	otherDigest := Plan{Key: key(2), Body: body(1002, 10), Digest: []byte{9}}
	otherPlan := Plan{Key: key(2), Body: []byte("x"), Digest: []byte{2, 2, 3}}
	nothing := func(Record) error { return nil }
	for name, c := range map[string]struct {
		err   error
		class error
		says  string
	}{
		"other digest":      {seal(otherDigest), ErrConflict, "train/0/2"},
		"other plan":        {seal(otherPlan), ErrConflict, "record 2"},
		"twice":             {seal(Plan{Key: key(9)}, Plan{Key: key(9)}), nil, "twice in one commit"},
		"long digest":       {seal(Plan{Key: key(9), Digest: make([]byte, MaxDigest+1)}), nil, "2049 bytes"},
		"no stream":         {seal(Plan{}), nil, "no name"},
		"zero in stream":    {seal(Plan{Key: StepKey{Stream: "a\x00"}}), nil, "zero byte"},
		"long stream":       {s.DropPlans(strings.Repeat("x", 256), 1), nil, "256 bytes"},
		"step":              {commit(Commit{Records: []Record{{Step: -2}}}), nil, "step -2"},
		"too big":           {commit(Commit{Records: []Record{{Body: make([]byte, maxCommit+1)}}}), nil, "at most"},
		"replay truncated":  {s.Replay(2, nothing), ErrNotCovered, "3 to 4"},
		"replay from ahead": {s.Replay(6, nothing), ErrNotCovered, "record 6"},
		"snapshot ahead":    {s.SaveSnapshot(5, 5, nil), ErrNotCovered, "ends at 4"},
		"snapshot behind":   {s.SaveSnapshot(2, 2, nil), ErrNotCovered, "of record 3"},
		"truncate":          {s.Truncate(5), ErrNotCovered, "snapshot of record 4"},
	} {
		if c.err == nil || c.class != nil && !errors.Is(c.err, c.class) || !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("%s: %v, want %v that says %q", name, c.err, c.class, c.says)
		}
	}
	if _, last := s.Bounds(); last != 4 {
		t.Errorf("a refused commit moved the journal's end to %d", last)
	}
	stop := errors.New("stop")
	if err := s.Replay(3, func(Record) error { return stop }); err != stop {
		t.Errorf("replay returned %v, want the caller's own error", err)
	}
	if err := s.Ledger(StepKey{}, StepKey{}, func(Entry) error { return stop }); err != stop {
		t.Errorf("ledger returned %v, want the caller's own error", err)
	}
}

// TestEmptyJournal: after the truncation of all records, a journal continues with the next index.
func TestEmptyJournal(t *testing.T) {
	disk := disktest.NewMemory()
	s := mustOpen(t, disk)
	steps(t, s, 1, 3, 10)
	if err := errors.Join(s.SaveSnapshot(3, 3, nil), s.Truncate(4)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if first, last := s.Bounds(); first != 4 || last != 3 {
			t.Errorf("bounds are %d to %d, want 4 to 3", first, last)
		}
		if err := s.Replay(4, func(Record) error { return errors.New("a record of nothing") }); err != nil {
			t.Error(err)
		}
		verified(t, s)
		mustClose(t, s)
		s = mustOpen(t, disk)
	}
	defer mustClose(t, s)
	if last, err := s.Append(Record{Step: NoStep}); last != 4 || err != nil {
		t.Errorf("append returned %d, %v, want 4", last, err)
	}
}

func TestLedgerRange(t *testing.T) {
	s := mustOpen(t, disktest.NewMemory())
	defer mustClose(t, s)
	for _, k := range []StepKey{{"eval", 0, 1}, {"train", 0, 1}, {"train", 0, 2}, {"train", 0, 3}, {"train", 1, 2}} {
		if _, err := s.Commit(Commit{Plans: []Plan{{Key: k, Body: []byte(k.String())}}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		from, to StepKey
		want     string
	}{
		{StepKey{}, StepKey{}, "eval/0/1 train/0/1 train/0/2 train/0/3 train/1/2"},
		{StepKey{"train", 0, 2}, StepKey{"train", 1, 0}, "train/0/2 train/0/3"},
		{StepKey{"train", 0, 3}, StepKey{}, "train/0/3 train/1/2"},
		{StepKey{"train", 1, 0}, StepKey{"train", 0, 0}, ""},
	} {
		var got []string
		collect := func(e Entry) error { got = append(got, e.Key.String()); return nil }
		if err := s.Ledger(c.from, c.to, collect); err != nil {
			t.Fatal(err)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("ledger from %v to %v: %v, want %s", c.from, c.to, got, c.want)
		}
	}
}

// TestCallsWithinCalls: the function of a Replay may commit. Close waits for the Replay; a commit during Close fails at
// once.
func TestCallsWithinCalls(t *testing.T) {
	s := mustOpen(t, disktest.NewMemory())
	steps(t, s, 1, 3, 10)
	var closing sync.WaitGroup
	var closed error
	seen := 0
	err := s.Replay(1, func(r Record) error {
		seen++
		if _, err := s.Append(Record{Step: NoStep}); err != nil {
			return err
		}
		if seen == 3 {
			closing.Go(func() { closed = s.Close() })
			for { // until Close is waiting
				leave, err := s.gate.enter()
				if err != nil {
					break
				}
				leave()
			}
			_, err := s.Append(Record{Step: NoStep})
			return err
		}
		return nil
	})
	closing.Wait()
	if !errors.Is(err, ErrClosed) || closed != nil || seen != 3 {
		t.Errorf("replay ended with %v after %d records, close with %v; want ErrClosed after 3, nil", err, seen, closed)
	}
	for name, err := range map[string]error{
		"close": s.Close(), "replay": s.Replay(1, nil), "truncate": s.Truncate(1), "drop": s.DropPlans("train", 1),
		"ledger": s.Ledger(StepKey{}, StepKey{}, nil), "dump": s.Dump(nil, DumpOptions{}),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after close: %v", name, err)
		}
	}
}

func TestReadOnly(t *testing.T) {
	disk := disktest.NewMemory()
	if _, err := OpenReadOnly(memConfig(disk)); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), memDir) {
		t.Errorf("open for reading without a store: %v", err)
	}
	s := mustOpen(t, disk)
	steps(t, s, 1, 3, 10)
	mustClose(t, s)
	before := disktest.Memory(disk).String()
	s, err := OpenReadOnly(memConfig(disk))
	if err != nil {
		t.Fatal(err)
	}
	if r := verified(t, s); r.Records != 3 || r.Plans != 3 || r.Entries != 3 || r.CreatedBy != "test" ||
		r.Format != formatVersion {
		t.Errorf("report %+v", r)
	}
	_, err = s.Append(Record{})
	for name, err := range map[string]error{
		"append": err, "snapshot": s.SaveSnapshot(1, 1, nil), "truncate": s.Truncate(1),
		"drop plans": s.DropPlans("train", 1), "drop snapshots": s.DropSnapshots(1), "compact": s.Compact(t.Context()),
	} {
		if !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s: %v, want ErrReadOnly", name, err)
		}
	}
	mustClose(t, s)
	if after := disktest.Memory(disk).String(); after != before {
		t.Errorf("reading changed the disk:\n%s\nwas\n%s", after, before)
	}
}

func TestOpenRefusesWhatIsNotOurs(t *testing.T) {
	t.Run("newer format", func(t *testing.T) {
		disk := disktest.NewMemory()
		s := mustOpen(t, disk)
		put(t, s, []byte{tagFormat}, encodeFormat([]byte{tagFormat}, formatVersion+1, "v99"))
		mustClose(t, s)
		if _, err := Open(memConfig(disk)); !errors.Is(err, ErrNewerFormat) || !strings.Contains(err.Error(), "v99") ||
			!strings.Contains(err.Error(), "format 3") {
			t.Errorf("open: %v", err)
		}
	})
	t.Run("older format", func(t *testing.T) {
		disk := disktest.NewMemory()
		s := mustOpen(t, disk)
		put(t, s, []byte{tagFormat}, encodeFormat([]byte{tagFormat}, 1, "v0"))
		mustClose(t, s)
		for _, open := range []func(Config) (*Store, error){Open, OpenReadOnly} {
			if _, err := open(memConfig(disk)); !errors.Is(err, ErrOlderFormat) ||
				!strings.Contains(err.Error(), "v0") ||
				!strings.Contains(err.Error(), "new run directory") {
				t.Errorf("open: %v", err)
			}
		}
	})
	t.Run("newer Pebble", func(t *testing.T) {
		disk := disktest.NewMemory()
		mustClose(t, mustOpen(t, disk))
		names, err := disk.FS().List(memDir)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if strings.HasPrefix(n, "marker.format-version.") {
				newer := n[:strings.LastIndex(n, ".")] + ".999"
				join := disk.FS().PathJoin
				if err := disk.FS().Rename(join(memDir, n), join(memDir, newer)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := Open(memConfig(disk)); !errors.Is(err, ErrNewerFormat) {
			t.Errorf("open: %v", err)
		}
	})
	t.Run("other files", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "thesis.tex"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Config{Dir: dir}); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), dir) {
			t.Errorf("open: %v", err)
		}
	})
	t.Run("a file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Config{Dir: path}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("open: %v", err)
		}
	})
	t.Run("no name", func(t *testing.T) {
		if _, err := Open(Config{}); err == nil || !strings.Contains(err.Error(), "no directory given") {
			t.Errorf("open without a directory: %v", err)
		}
	})
	t.Run("lost manifest", func(t *testing.T) {
		disk := disktest.NewMemory()
		mustClose(t, mustOpen(t, disk))
		names, err := disk.FS().List(memDir)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if strings.HasPrefix(n, "marker.") {
				if err := disk.FS().Remove(disk.FS().PathJoin(memDir, n)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := Open(memConfig(disk)); err == nil {
			t.Error("a store without its markers was taken for a new one")
		}
	})
}

func TestDump(t *testing.T) {
	s := mustOpen(t, disktest.NewMemory())
	defer mustClose(t, s)
	steps(t, s, 5, 1, 0)
	if _, err := s.Append(Record{Step: NoStep, Kind: 9, Body: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	if err := s.SaveSnapshot(1, 5, []byte("state")); err != nil {
		t.Fatal(err)
	}
	describe := func(what string, kind uint8, _ StepKey, b []byte) string {
		return fmt.Sprintf("<%s %d %q>", what, kind, b)
	}
	var text bytes.Buffer
	if err := s.Dump(&text, DumpOptions{Describe: describe}); err != nil {
		t.Fatal(err)
	}
	want := `format   size=12  version 2, created by test
snapshot index=1 step=5 size=5 digest=ccb356a16ce4d54a899465fe1ae32812  <snapshot 0 "state">
record   index=1 step=5 kind=3 size=10 digest=3aa25a509aeb1a68a0b3c04454f05e8a  <record 3 "body of 5;">
record   index=2 kind=9 size=5 digest=b5e9c1ad071b3e7fc779cfaa5e523818  <record 9 "hello">
entry    train/0/5 index=1 size=13 digest=050203  <entry 0 "\x05\x02\x03">
plan     train/0/5 size=13 digest=a1d58ab420c418c94723c10576716618  <plan 0 "body of 1005;">
`
	if got := text.String(); got != want {
		t.Errorf("text dump:\n%s\nwant\n%s", got, want)
	}

	k := indexKey(tagRecord, 1)
	put(t, s, k, []byte("not a record at all"))
	var lines bytes.Buffer
	if err := s.Dump(&lines, DumpOptions{JSON: true}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("dump of a damaged store: %v", err)
	}
	var damaged, whole int
	dec := json.NewDecoder(&lines)
	for dec.More() {
		var l dumpLine
		if err := dec.Decode(&l); err != nil {
			t.Fatal(err)
		}
		if l.Damaged != "" {
			damaged++
			if l.What != dumpRecord || *l.Index != 1 {
				t.Errorf("damaged: %+v", l)
			}
		} else {
			whole++
		}
	}
	if damaged != 1 || whole != 5 {
		t.Errorf("%d damaged and %d whole lines, want 1 and 5", damaged, whole)
	}
}

func TestPebbleLogStaysOutOfTheWay(t *testing.T) {
	var log bytes.Buffer
	cfg := memConfig(disktest.NewMemory())
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	for range 2 {
		s, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		_, last := s.Bounds()
		steps(t, s, last+1, 20, 40_000)
		mustClose(t, s)
	}
	if log.Len() > 0 {
		t.Errorf("a healthy store logged: %s", log.String())
	}
}
