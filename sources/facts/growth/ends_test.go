package growth_test

import (
	"strings"
	"testing"

	"millrace/sources/facts/growth"
	"millrace/sources/read/order"
)

// TestNoPassFollows: new files of a source in its last pass are never read, and the text says so.
func TestNoPassFollows(t *testing.T) {
	for _, test := range []struct {
		passes uint32
		want   string
	}{
		{0, "from pass 2 on"}, {1, "never read"}, {2, "from pass 2 on"},
	} {
		kept := blobs{}
		was, now := inBlocks(t, kept, "abc", "abcd"), inBlocks(t, kept, "abcd", "abcd")
		c, err := growth.NewChange(growth.Change{Was: was, Now: now,
			Seed: order.Seed{Run: 3, Source: "web", Epochs: test.passes}, At: growth.Place{Ordinal: 4}},
			growth.Begin(was.Manifest.Fingerprint), kept)
		if err != nil {
			t.Fatal(err)
		}
		eras, err := c.Grow(true, false)
		if err != nil {
			t.Fatal(err)
		}
		n := c.Count(&eras)
		said := n.Describe(true)
		if !strings.Contains(said, test.want) || n.Unread != (test.passes == 1) || n.Added != 3 {
			t.Errorf("%d passes: %+v: %s", test.passes, n, said)
		}
	}
}
