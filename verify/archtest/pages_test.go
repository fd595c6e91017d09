package archtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPagesNameTheirReaders: the first paragraph of each page of docs says whom it is for, and what for. Records of
// decisions are one collection, whose index says it.
func TestPagesNameTheirReaders(t *testing.T) {
	pages := written(t, ".md")
	found := 0
	for _, name := range pages {
		if !strings.HasPrefix(name, "docs/") || strings.HasPrefix(filepath.Base(name), "00") {
			continue
		}
		found++
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		_, first, _ := strings.Cut(string(text), "\n")
		if first = strings.TrimSpace(first); !strings.HasPrefix(first, "For ") {
			t.Errorf("%s: the page does not begin with its readers: write `For …:` below the title", name)
		}
	}
	if found < 30 {
		t.Errorf("only %d pages were found", found)
	}
}
