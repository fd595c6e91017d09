package find

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"millrace"
)

// MostPlaceholder bounds the bytes of a file that stands for another one.
const MostPlaceholder = 1024

// CheckContent refuses a file that stands for content which was not fetched, by its first bytes. size is that of the
// file. Other files pass.
func CheckContent(path string, head []byte, size int64) error {
	if what, cure := placeholder(head, size); what != "" {
		return millrace.Errorf(millrace.ErrInvalid, "read %s: it is %s in place of the file: %s", path, what, cure)
	}
	return nil
}

// placeholder returns the kind of a file that stands for content which was not fetched, and how to fetch the content.
// For other files both are empty.
func placeholder(head []byte, size int64) (what, cure string) {
	if size > MostPlaceholder {
		return "", ""
	}
	for _, p := range []struct{ begins, what, cure string }{
		{"version https://git-lfs.github.com/spec/", "a Git LFS pointer", "run `git lfs pull`"},
		{"version https://hawser.github.com/spec/", "a Git LFS pointer", "run `git lfs pull`"},
		{"# xet version ", "a Xet pointer", "run `git xet checkout`, or download the file from the hub"},
		{"/annex/objects/", "a git-annex pointer", "run `git annex get`"},
	} {
		if bytes.HasPrefix(head, []byte(p.begins)) {
			return p.what, p.cure
		}
	}
	return "", ""
}

// notFetched returns the cure for a file that is not there, if another file stands for it, else "".
func notFetched(full string) string {
	if to, err := os.Readlink(full); err == nil && !exists(full) {
		if strings.Contains(filepath.ToSlash(to), ".git/annex/") {
			return full + " is a link of git-annex whose content is not here: run `git annex get`"
		}
		return full + " is a link to " + to + ", which is not there"
	}
	if exists(full + ".dvc") {
		return full + ".dvc stands for it: run `dvc pull`"
	}
	return ""
}
