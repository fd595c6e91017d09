package growth_test

import (
	"fmt"
	"strings"
	"testing"

	"millrace"
	"millrace/sources/facts/growth"
	"millrace/sources/read/order"
)

// inBlocks returns the listing of files of three records each, in block order, and keeps the tables of some.
func inBlocks(t *testing.T, kept blobs, names string, counted string) *growth.Listing {
	t.Helper()
	l := &growth.Listing{Settings: []byte("settings"), Blocks: "blocks"}
	l.Manifest = millrace.Manifest{Source: "web", Format: "jsonl", Shuffle: millrace.Blocks}
	for _, name := range names {
		digest := millrace.Digest{byte(name)}
		l.Manifest.Shards = append(l.Manifest.Shards, millrace.Shard{Name: string(name), Size: 1, Digest: digest})
		if strings.ContainsRune(counted, name) {
			table := order.Table{{Records: 3, Raw: 3}}
			if err := kept.Save(digest, "blocks", table.Encode()); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.Manifest.Fingerprint = growth.Fingerprint(l.Settings, l.Manifest.Shards)
	return l
}

// TestUncountedFilesOfAnEarlierEpoch: segments of the last file of epoch 0 wait while epoch 1 is read, and this index
// directory never counted that file, because another host read it. New files begin with epoch 2.
func TestUncountedFilesOfAnEarlierEpoch(t *testing.T) {
	seed := order.Seed{Run: 3, Source: "web"}
	for _, counted := range []string{"", "a", "b", "c", "abc"} {
		kept := blobs{}
		was, now := inBlocks(t, kept, "abc", counted), inBlocks(t, kept, "abcd", counted)
		at := growth.Place{Ordinal: 10, Epoch: 1, SeekPoint: millrace.SeekPoint{Ordinal: 6, Shard: 2}}
		c, err := growth.NewChange(growth.Change{Now: now, Seed: seed, At: at},
			growth.Begin(was.Manifest.Fingerprint), kept)
		if err != nil {
			t.Fatal(err)
		}
		eras, err := c.Grow(true, false)
		if err != nil || len(eras.From) != 2 || eras.From[1] != 2 {
			t.Errorf("counted %q: the eras begin at %v, want 0 and 2; %v", counted, eras.From, err)
		}
	}
}

// TestDrawnDocumentsOfUncountedFiles: whether a document that was drawn is of a missing file is decided, or refused
// with the file that has to be counted. It is never guessed.
func TestDrawnDocumentsOfUncountedFiles(t *testing.T) {
	seed := order.Seed{Run: 3, Source: "web"}
	b := order.NewBlocks(seed, false, 3)
	names := make([]string, 3) // in the order of the epoch
	for i := range names {
		shard, _ := b.ShardAt(0, uint32(i))
		names[i] = string("abc"[shard])
	}
	for _, test := range []struct {
		gone    int // position of the missing file
		counted string
		want    string
	}{
		{0, "abc", "false"},
		{1, "abc", "true"},
		{1, names[1], "may be of the missing file " + names[1]},
		{1, names[0] + names[1], "true"},
		{2, names[2], "may be of the missing file " + names[2]},
		{2, names[0] + names[2], "may be of the missing file " + names[2]},
		{0, names[0], "false"}, // file 1 is not counted, and no missing file follows it
	} {
		kept := blobs{}
		was := inBlocks(t, kept, "abc", test.counted)
		now := inBlocks(t, kept, strings.ReplaceAll("abc", names[test.gone], ""), test.counted)
		at := growth.Place{Ordinal: 5, Begun: true, SeekPoint: millrace.SeekPoint{}}
		c, err := growth.NewChange(growth.Change{Was: was, Now: now, Seed: seed, At: at},
			growth.Begin(was.Manifest.Fingerprint), kept)
		if err != nil {
			t.Fatal(err)
		}
		gone, err := c.IsGone(5) // the last document of the second file
		got := fmt.Sprint(gone)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, test.want) || err != nil && !strings.Contains(got, "index MIXTURE --lengths`") {
			t.Errorf("%+v: %s", test, got)
		}
	}
}
