package tokenize

import (
	"bytes"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestRoundTripOfAnyBytes(t *testing.T) {
	for _, name := range testEncodings() {
		e := load(t, name)
		enc := e.NewEncoder()
		r := rand.New(rand.NewPCG(5, 6))
		for i := range 2000 {
			text := randomPiece(r, e, i%700)
			ids := enc.Append(nil, text)
			back, err := e.Decode(nil, ids)
			if err != nil || !bytes.Equal(back, text) {
				t.Fatalf("%s: %q came back as %q: %v", name, text, back, err)
			}
			for _, id := range ids {
				if int(id) >= e.VocabSize() {
					t.Fatalf("%s: id %d is not below %d", name, id, e.VocabSize())
				}
			}
		}
	}
}

// The remembered pieces change no ids, even when the memory overflows.
func TestMemoryChangesNoIds(t *testing.T) {
	g := readGolden(t)
	e := load(t, "r50k_base")
	used := e.NewEncoder()
	used.Append(nil, g.blockText(0x4000))
	for seed := range uint64(20) {
		used.Append(nil, g.randomText(100+seed))
	}
	// Many long pieces with many tokens fill the ring, which then begins anew.
	r := rand.New(rand.NewPCG(7, 8))
	for range 6000 {
		used.Append(nil, append(bytes.Repeat([]byte{'#'}, 1+r.IntN(60)), randomPiece(r, e, 180)...))
	}
	if used.long.end < 3*leastWords {
		t.Error("the memory for long pieces never was full: the case is not covered")
	}
	for seed := range uint64(20) {
		text := g.randomText(90 + seed)
		if got, want := used.Append(nil, text), e.NewEncoder().Append(nil, text); !slices.Equal(got, want) {
			t.Fatalf("random text %d: a used encoder's ids differ from a fresh one's", 90+seed)
		}
	}
}

// TestAnEncodersMemoryDecidesItsSpeedAlone: encoders of all sizes give the same ids and take the memory they may.
func TestAnEncodersMemoryDecidesItsSpeedAlone(t *testing.T) {
	e, documents := load(t, "cl100k_base"), corpus(t, 300_000)
	want, least := e.NewEncoder(), LeastEncoderBytes()
	for _, may := range []int64{0, 2 * least, 3 * least, 8 * least, 1 << 40} {
		e.LimitEncoders(1, may)
		enc := e.NewEncoder()
		has := enc.short.Bytes() + int64(len(enc.long.slots)*16+len(enc.long.ring)*4)
		if takes := EncoderBytes(may); has >= takes || takes > max(may, least) || takes > 8*least {
			t.Errorf("an encoder that may take %d bytes takes %d, and has %d for pieces", may, takes, has)
		}
		for i, document := range documents {
			if !slices.Equal(enc.Append(nil, document), want.Append(nil, document)) {
				t.Fatalf("document %d has other ids with %d bytes", i, may)
			}
		}
	}
}

func TestAppendKeepsThePrefix(t *testing.T) {
	enc := load(t, "gpt2").NewEncoder()
	text := []byte("Hello, world! " + string(bytes.Repeat([]byte("It's 12345 tokens.\n"), 500)))
	want := enc.Append(nil, text)
	got := enc.Append([]uint32{1, 2, 3}, text)
	if !slices.Equal(got[:3], []uint32{1, 2, 3}) || !slices.Equal(got[3:], want) {
		t.Error("Append changed the ids in dst, or the ids of the text")
	}
	exact := make([]uint32, 0, len(want))
	if got := enc.Append(exact, text); !slices.Equal(got, want) || &got[0] != &exact[:1][0] {
		t.Error("a slice with just enough room was not used")
	}
}

func TestNoAllocations(t *testing.T) {
	for _, name := range testEncodings() {
		enc := load(t, name).NewEncoder()
		documents := corpus(t, 200_000)
		ids := make([]uint32, 0, 200_000)
		if n := testing.AllocsPerRun(3, func() {
			for _, document := range documents {
				ids = enc.Append(ids[:0], document)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestOneEncodingServesManyGoroutines(t *testing.T) {
	e := load(t, "cl100k_base")
	documents := corpus(t, 100_000)
	var want [][]uint32
	for _, document := range documents {
		want = append(want, e.NewEncoder().Append(nil, document))
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			enc := e.NewEncoder()
			for i, document := range documents {
				if !slices.Equal(enc.Append(nil, document), want[i]) {
					t.Errorf("document %d differs", i)
				}
			}
		})
	}
	group.Wait()
}

// TestLentEncodersAreReused: rare calls make no new encoder, and concurrent calls do not mix.
func TestLentEncodersAreReused(t *testing.T) {
	e := load(t, "gpt2")
	text := []byte("The quick brown fox jumps over the lazy dog, café, 12345.")
	want := e.NewEncoder().Append(nil, text)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				if got := e.Append(nil, text, nil); !slices.Equal(got, want) {
					t.Errorf("lent encoder: %v, want %v", got, want)
				}
			}
		})
	}
	group.Wait()
	if n := testing.AllocsPerRun(100, func() { e.Append(want[:0:len(want)], text, func() {}) }); n != 0 {
		t.Errorf("%v allocations for a document, want none", n)
	}
}

// TestLongWorkReportsProgress: progress is reported on any text, also on one endless piece, and on a piece whose
// windows have no good end.
func TestLongWorkReportsProgress(t *testing.T) {
	e := load(t, "cl100k_base")
	for name, text := range map[string]string{"words": "a word ", "one piece": "\uA001\uA02F\uA100",
		"one letter": "a"} {
		text := []byte(strings.Repeat(text, (3<<20)/len(text)+1))
		told := 0
		got := e.Append(nil, text, func() { told++ })
		if told < 2 || told > 100 {
			t.Errorf("%s: %d MiB, and progress was reported %d times", name, len(text)>>20, told)
		}
		if want := e.NewEncoder().Append(nil, text); !slices.Equal(got, want) {
			t.Errorf("%s: reports of progress change the tokens", name)
		}
	}
}

// TestSharedTablesGiveTheSameIds: encodings that map one file give tiktoken's ids. Other models have nothing to share.
func TestSharedTablesGiveTheSameIds(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"r50k_base", "r50k_base", "o200k_base"} {
		e, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Share(dir); err != nil {
			t.Fatal(err)
		}
		checkGolden(t, name, e)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Errorf("two vocabularies have the files %v, %v", files, err)
	}
	none := t.TempDir()
	if err := (&Encoding{}).Share(none); err != nil {
		t.Errorf("a model without tables: %v", err)
	}
	if files, _ := os.ReadDir(none); len(files) > 0 {
		t.Errorf("a model without tables made %v", files)
	}
}
