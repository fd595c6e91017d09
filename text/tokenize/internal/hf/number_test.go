package hf

import (
	"bytes"
	"testing"
)

// TestNumbersAreThoseOfTheLibrary has numbers that tokenizers 0.23.3 reads and writes again.
func TestNumbersAreThoseOfTheLibrary(t *testing.T) {
	for text, want := range map[string]float64{
		"-1.0041352723866925": -1.0041352723866923, "0": 0, "-2": -2, "1e2": 100, "-3.5E-1": -0.35, "0.1": 0.1,
		"123456789012345678901234567890": 1.2345678901234568e29, "0.12345678901234567890123": 0.12345678901234568,
		"1e-400": 0, "-9.25": -9.25, "0.0": 0,
	} {
		if got, err := number([]byte(text)); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", `"1"`, "1e400", "null", "1e99999999999999999999"} {
		if got, err := number([]byte(text)); err == nil {
			t.Errorf("%s: got %v, want an error", text, got)
		}
	}
}

// TestScoresOfTheLibraryBelongToTheIdentity: stored lengths hold for the scores that made them.
func TestScoresOfTheLibraryBelongToTheIdentity(t *testing.T) {
	for score, want := range map[string]bool{"-1.0041352723866925": true, "-1.5": false} {
		file := `{"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", ` + score + `]]}}`
		got, err := parse([]byte(file), &config{})
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(got.Parts, []byte("scores of the library")) != want {
			t.Errorf("%s: the description is %s", score, got.Parts)
		}
	}
}
