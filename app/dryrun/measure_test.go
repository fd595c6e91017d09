package dryrun

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"millrace"
	"millrace/app/config"
)

// library writes the lengths of short pages and of 20,001 books, of which the longest has 3 million tokens.
func library(t *testing.T, key string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"web.csv": "tokens,count\n500,400000\n2500,20000\n", "books.csv": "tokens,count\n3000000,1\n200000,20000\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := "version: 1\nsequence_length: 4096\nglobal_batch_size: 256\nmixture: {weights: {web: 0.7, books: 0.3}}\n" +
		key + "\nsources:\n  web: {format: lengths, path: web.csv}\n  books: {format: lengths, path: books.csv}\n"
	c, err := config.Parse("mixture.yaml", []byte(text), dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// largestShare returns the largest part of a planned step, and of ten steps in a row, that one document has.
func largestShare(t *testing.T, c *config.Config, steps int) (one, ten float64) {
	t.Helper()
	o, err := Open(t.Context(), c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	type document struct {
		source uint32
		id     millrace.SampleID
	}
	var held []map[document]uint64
	largest := func(last int) float64 {
		sum, total, most := map[document]uint64{}, uint64(0), uint64(0)
		for _, step := range held[max(0, len(held)-last):] {
			for d, n := range step {
				sum[d] += n
				total, most = total+n, max(most, sum[d])
			}
		}
		return float64(most) / float64(total)
	}
	err = o.Walk(t.Context(), 1, func(ctx context.Context, w *Walk) error {
		for range steps {
			s, err := w.Next(ctx)
			if err != nil {
				return err
			}
			here := map[document]uint64{}
			for _, seg := range s.Segments {
				here[document{seg.Source, seg.ID}] += uint64(seg.Length)
			}
			held = append(held, here)
			one = max(one, largest(1))
			if len(held) >= 10 {
				ten = max(ten, largest(10))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return one, ten
}

// TestLongestDocument: one book has almost a third of a step of a million tokens if its pieces are consecutive, and at
// most 1 % if they are shuffled. Check says about as much beforehand, and recommends to shuffle.
func TestLongestDocument(t *testing.T) {
	for _, key := range []string{"long_documents: consecutive", ""} {
		shuffled := key != "long_documents: consecutive"
		c := library(t, key)
		one, ten := largestShare(t, c, 60)
		r, err := Check(t.Context(), c, CheckOptions{Ranks: 1, Steps: 1, Budget: -1})
		if err != nil || len(r.Problems) > 0 {
			t.Fatal(err, r.Problems)
		}
		l := r.Longest
		t.Logf("%q: %.2f%% of a step, %.2f%% of ten; check: %+v", key, 100*one, 100*ten, *l)
		if l.Source != "books" || l.Tokens != 3_000_000 || !l.Exact || l.Shuffled != shuffled ||
			l.Recommend == shuffled {
			t.Errorf("%q: %+v", key, l)
		}
		if shuffled && (one > 0.01 || l.Step > 0.02) || !shuffled && (one < 0.15 || l.Step < 0.25) {
			t.Errorf("%q: one document has %.2f%% of a step, check says %.2f%%", key, 100*one, 100*l.Step)
		}
		if l.Step < one*0.8 || l.TenSteps < ten*0.8 {
			t.Errorf("%q: check says %.4f and %.4f, planned are %.4f and %.4f", key, l.Step, l.TenSteps, one, ten)
		}
	}
}
