package sentencepiece

import (
	"slices"
	"strings"
	"testing"

	"millrace/text/tokenize/internal/oracletest"
	"millrace/text/tokenize/internal/unigram"
)

func names() []string {
	return []string{"bpe_llama", "bpe_nfkc", "bpe_suffix", "bpe_crossing", "bpe_unused", "unigram_nfkc",
		"unigram_bytes", "unigram_unused", "unigram_ties", "unigram_large"}
}

func model(t testing.TB, name string) *Model {
	t.Helper()
	m, err := Parse(oracletest.File(t, name+".model"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// encode encodes a text, with BPE piece by piece.
func encode(m *Model, text string) []uint32 {
	normal := m.Normalize(nil, []byte(text))
	if !m.IsDivided() {
		return m.AppendWhole(nil, normal, &unigram.Scratch{})
	}
	var ids []uint32
	var w Merger
	var ends [8]int
	for pos := 0; pos < len(normal); {
		n := m.Pieces(normal, pos, ends[:])
		for _, end := range ends[:n] {
			ids = w.Append(ids, m, normal[pos:end])
			pos = end
		}
	}
	return m.Fuse(ids)
}

func TestEncodesAsSentencePiece(t *testing.T) {
	for _, name := range names() {
		t.Run(name, func(t *testing.T) {
			m := model(t, name)
			var cases []oracletest.Case
			oracletest.JSON(t, name+".json", &cases)
			if len(cases) < 100 {
				t.Fatalf("%d cases", len(cases))
			}
			for _, c := range cases {
				if got := encode(m, c.Text); !slices.Equal(got, c.IDs) {
					t.Errorf("%q became %v, not %v", c.Text, got, c.IDs)
				}
			}
		})
	}
}

func TestWindowsMergeAsOnePiece(t *testing.T) {
	for _, name := range []string{"bpe_llama", "bpe_crossing", "bpe_nfkc"} {
		m := model(t, name)
		var cases []oracletest.Case
		oracletest.JSON(t, name+".json", &cases)
		var text strings.Builder
		for _, c := range cases {
			text.WriteString(c.Text)
		}
		for _, long := range []string{strings.Repeat("a", 50_000), strings.Repeat("ab ", 9_000), text.String()} {
			piece := m.Normalize(nil, []byte(long))
			var w Merger
			got := w.Append(nil, m, piece)
			var want []uint32
			for _, token := range w.merge(nil, m, piece, 0, len(piece)) {
				want = w.write(want, m, piece, token)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s encodes %d bytes as %d tokens in windows, and %d as one piece", name, len(piece),
					len(got), len(want))
			}
		}
	}
}

func TestRefusesBrokenModels(t *testing.T) {
	file := oracletest.File(t, "bpe_llama.model")
	for _, broken := range [][]byte{nil, file[:1], file[:100], file[:len(file)-1], file[:len(file)/2]} {
		if _, err := Parse(broken); err == nil {
			t.Errorf("a model of %d bytes is accepted", len(broken))
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(oracletest.File(f, "bpe_llama.model"), "a b  c\n")
	f.Add(oracletest.File(f, "bpe_unused.model"), "The quick brown fox")
	f.Fuzz(func(t *testing.T, file []byte, text string) {
		if m, err := Parse(file); err == nil {
			encode(m, text)
		}
	})
}

func BenchmarkUnigram(b *testing.B) { benchmark(b, "unigram_nfkc") }
func BenchmarkBPE(b *testing.B)     { benchmark(b, "bpe_llama") }

func benchmark(b *testing.B, name string) {
	m := model(b, name)
	text := strings.Repeat("All human beings are born free and equal in dignity and rights. ", 1000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		encode(m, text)
	}
}
