package rows

import "testing"

// TestWindowsAreBounded: the stretches of many shards take at most the set's bytes. A larger one is dropped, and its
// decompressor stays.
func TestWindowsAreBounded(t *testing.T) {
	const limit = 1 << 20
	w := NewWindows(8, limit)
	for range 20 {
		c, err := w.take(&shard{kind: plain})
		if err != nil {
			t.Fatal(err)
		}
		c.plain.buf = make([]byte, 300_000)
		if w.give(c); w.bytes > limit || len(w.idle) > 8 {
			t.Fatalf("%d stretches take %d bytes, more than %d", len(w.idle), w.bytes, limit)
		}
	}
	c, err := w.take(&shard{kind: plain})
	if err != nil {
		t.Fatal(err)
	}
	unpack := c.frames.unpack
	c.plain.buf = make([]byte, limit+1)
	w.give(c)
	if w.bytes > limit || cap(c.plain.buf) > limit {
		t.Errorf("%d bytes are kept, more than %d", w.bytes, limit)
	}
	if kept := w.idle[len(w.idle)-1]; kept.frames.unpack != unpack {
		t.Error("the decompressor of a large stretch was dropped")
	}
}
