package find_test

import (
	"errors"
	"strings"
	"testing"

	"millrace"
	"millrace/sources/find"
)

// TestSplitsOfEnergonAreToldApart: a directory of several splits is refused with the archives of one.
func TestSplitsOfEnergonAreToldApart(t *testing.T) {
	base := put(t, map[string]string{
		"two/.nv-meta/split.yaml": "split_parts:\n  val: [v.tar]\n  test: []\n" +
			"  train: [a.tar, 'b_{0..3}.tar', c.tar, d.tar]\n",
		"two/a.tar": "", "two/v.tar": "",
		"one/.nv-meta/split.yaml": "split_parts:\n  train: [a.tar]\n  val: []\nexclude: []\n", "one/a.tar": "",
		"bad/.nv-meta/split.yaml": "split_parts: [\n", "bad/a.tar": "",
	})
	for pattern, want := range map[string]string{
		"two": "is an Energon dataset with the splits train, val: name the archives of one, as path: [" +
			base + "/two/a.tar, " + base + "/two/b_{0..3}.tar, " + base + "/two/c.tar, ...] for train",
		"two/v.tar": "", "one": "", "bad": "read " + base + "/bad/.nv-meta/split.yaml: ", ".": "Energon",
	} {
		_, err := find.Resolve(nil, base, []string{pattern}, "", "webdataset")
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", pattern, err)
		case want != "" && (!errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %s", pattern, err, want)
		}
	}
}
