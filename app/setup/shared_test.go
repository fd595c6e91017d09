package setup_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/app/setup"
)

// TestSharedFiles: sources that read the same path, another path of the same file, or the same content have a warning.
// Sources of one stream that divide a file by filters have none.
func TestSharedFiles(t *testing.T) {
	dir := t.TempDir()
	a, link, copied := filepath.Join(dir, "a"), filepath.Join(dir, "link"), filepath.Join(dir, "copy")
	for _, path := range []string{a, copied} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(a, link); err != nil {
		t.Fatal(err)
	}
	content := millrace.Digest{1}
	for name, c := range map[string]struct {
		uses []setup.Use
		want string // in the only warning; empty: none
	}{
		"one source":   {[]setup.Use{{Source: "s", Path: a}, {Source: "s", Path: copied}}, ""},
		"another file": {[]setup.Use{{Source: "s", Path: a}, {Source: "t", Path: copied}}, ""},
		"the same path": {[]setup.Use{{Source: "s", Path: a}, {Source: "t", Path: a}}, "s and t read the same " +
			"files: 1; the first is " + a},
		"a link": {[]setup.Use{{Source: "s", Path: a}, {Source: "t", Path: link}}, a + " = " + link},
		"a copy": {[]setup.Use{{Source: "s", Path: a, Content: content}, {Source: "t", Path: copied, Content: content}},
			a + " = " + copied},
		"a URL": {[]setup.Use{{Source: "s", Path: "s3://b/a"}, {Source: "t", Path: "s3://b/a"}}, "s3://b/a"},
		"evaluation": {[]setup.Use{{Stream: "train", Source: "s", Path: a}, {Stream: "eval", Source: "v", Path: a}},
			"s and v of stream eval read"},
		"filters": {[]setup.Use{{Source: "s", Path: a, Filtered: true}, {Source: "t", Path: a, Filtered: true}}, ""},
		"filters of two streams": {[]setup.Use{{Source: "s", Path: a, Filtered: true},
			{Stream: "eval", Source: "t", Path: a, Filtered: true}}, "read the same files"},
	} {
		for i := range c.uses {
			if c.uses[i].Stream == "" {
				c.uses[i].Stream = string(millrace.Train)
			}
		}
		got := setup.Shared(c.uses)
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
			t.Errorf("%s: got %q, want %q", name, slices.Sorted(slices.Values(got)), c.want)
		}
	}
}
