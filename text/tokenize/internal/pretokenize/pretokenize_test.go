package pretokenize

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// piecesOf divides each part of a text as a text of its own, stage by stage.
func piecesOf(stages Stages, text string) []string {
	parts := []string{text}
	for _, stage := range stages {
		var next []string
		for _, part := range parts {
			for i := 0; i < len(part); {
				end := stage.Next([]byte(part), i)
				next = append(next, part[i:end])
				i = end
			}
		}
		parts = next
	}
	return parts
}

func TestPiecesAreThoseOfStageByStage(t *testing.T) {
	var stages Stages
	for _, expression := range []string{`\p{N}{1,3}`, `[a-z]+1?`, `\s+(?!\S)|\s+|ab|[^\s]`} {
		stage, err := Split(expression)
		if err != nil {
			t.Fatal(err)
		}
		stages = append(stages, stage)
	}
	letters := []rune("ab1 2\n中")
	r := rand.New(rand.NewPCG(3, 4))
	cursor := stages.NewCursor()
	for range 3000 {
		var text strings.Builder
		for range r.IntN(40) {
			text.WriteRune(letters[r.IntN(len(letters))])
		}
		var got []string
		ends := make([]int, 1+r.IntN(9))
		cursor.Reset()
		for pos := 0; pos < text.Len(); {
			n := cursor.Pieces([]byte(text.String()), pos, ends)
			for _, end := range ends[:n] {
				got = append(got, text.String()[pos:end])
				pos = end
			}
		}
		if want := piecesOf(stages, text.String()); !slices.Equal(got, want) && text.Len() > 0 {
			t.Fatalf("%q: pieces %q, want %q", text.String(), got, want)
		}
	}
}

func TestTiktokenRefusesGaps(t *testing.T) {
	if _, err := Tiktoken(`\d+|\s`); err == nil || !strings.Contains(err.Error(), "leave out text") {
		t.Errorf("error %v, want one about text that is left out", err)
	}
	if stage, err := Tiktoken(GPT2); err != nil || stage.String() != GPT2 {
		t.Errorf("stage %v, error %v", stage, err)
	}
}
