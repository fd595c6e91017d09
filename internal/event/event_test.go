package event

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"millrace/internal/seam"
)

func TestRecordsAreNumberedAndInOrder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "events")
	l, err := Open(dir, "loader-0", seam.System{})
	if err != nil {
		t.Fatal(err)
	}
	const writers, each = 8, 50
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				l.Write(
					Record{
						Event: "fetch",
						Seq:   99,
						Role:  "forged",
						Step:  int64(i),
						Rank:  w,
						Micro: -1,
						Key:   "web \"quoted\"\n",
					},
				)
			}
		})
	}
	group.Wait()
	path := filepath.Join(dir, fmt.Sprintf("loader-0-%d.jsonl", os.Getpid()))
	records := read(t, path) // before Close: a kill -9 loses none
	if len(records) != writers*each {
		t.Fatalf("%d records", len(records))
	}
	next := make([]int64, writers)
	for i, r := range records {
		if r.Seq != uint64(i)+1 || r.Role != "loader-0" || r.Pid != os.Getpid() || r.Key != "web \"quoted\"\n" ||
			r.Micro != -1 {
			t.Fatalf("record %d is %+v", i, r)
		}
		if i > 0 && r.Nanos < records[i-1].Nanos {
			t.Fatalf("record %d is older than the one before", i)
		}
		if r.Step != next[r.Rank] {
			t.Fatalf("writer %d: got %d, want %d", r.Rank, r.Step, next[r.Rank])
		}
		next[r.Rank]++
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(dir, "loader-0", seam.System{}) // an existing file is extended
	if err != nil {
		t.Fatal(err)
	}
	again.Write(Record{Event: "start"})
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if records = read(t, path); len(records) != writers*each+1 || records[len(records)-1].Seq != 1 {
		t.Errorf("%d records after another life", len(records))
	}
}

func read(t *testing.T, path string) (out []Record) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var r Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v", lines.Bytes(), err)
		}
		out = append(out, r)
	}
	return out
}

func TestWithoutADirectoryNothingIsWritten(t *testing.T) {
	l, err := Open("", "loader-0", seam.System{})
	if l != nil || err != nil {
		t.Fatalf("%v %v", l, err)
	}
	l.Write(Record{Event: "start"})
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(file, "below"), "loader-0", seam.System{}); err == nil {
		t.Error("a directory below a file was opened")
	}
}
