package sources

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// hiccup fails its first reads.
type hiccup struct {
	OpenFile
	left int
}

func (h *hiccup) Name() string { return "a.jsonl" }

func (h *hiccup) ReadAt(p []byte, _ int64) (int, error) {
	if h.left--; h.left >= 0 {
		return 0, errors.New("host is down")
	}
	return len(p), nil
}

// TestTroubleIsToldAndItsEnd: only where reads fail for long, and once.
func TestTroubleIsToldAndItsEnd(t *testing.T) {
	for fails, want := range map[int]int{0: 0, tellTry - 1: 0, tellTry: 2, readTries: 2} {
		var told []string
		f := &retryFile{OpenFile: &hiccup{left: fails}, wait: 1, trouble: &trouble{tell: func(text string) { told = append(told, text) }}}
		_, err := f.ReadAt(make([]byte, 1), 0)
		if (err != nil) != (fails >= readTries) || len(told) != want {
			t.Errorf("%d reads fail: %v, told %q", fails, err, told)
		}
		if want > 0 && (!strings.Contains(told[0], "a.jsonl") || !strings.Contains(told[0], "host is down") || !slices.Equal(told[1:], []string{""})) {
			t.Errorf("%d reads fail: told %q", fails, told)
		}
	}
}
