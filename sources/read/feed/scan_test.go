package feed

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"millrace"
	"millrace/sources"
	"millrace/sources/read/budget"
	"millrace/sources/read/feed/decode"
	"millrace/sources/read/order"
)

// TestAScanKeepsNoText: a text that its user has dropped is garbage, although the scan could go on. At the shard's end
// the scan lets go of the shard, too, before anybody asks for a further block.
func TestAScanKeepsNoText(t *testing.T) {
	c := corpus{}
	c.add("a.jsonl", "first", "second", "third")
	x := fixture{shuffle: millrace.Blocks, limit: 6} // a record a block
	s := x.open(t, c.write(t))
	scan := decode.NewScan(0, 0)
	defer scan.Close()
	for block := range 3 {
		text := read(t, scan, s)
		awaitCollection(t, block, text)
	}
	text, err := scan.Read(t.Context(), s, decode.Store{}, budget.NewLarge(), decode.Wanted{Most: 1 << 20})
	if text != nil || err != nil {
		t.Errorf("after the last block: %v, %v", text, err)
	}
}

// TestABlockFoundByAnotherReader: while the scan of a block runs, a random read finds the same block. The scan's text
// still gets the ordinals of its own block.
func TestABlockFoundByAnotherReader(t *testing.T) {
	c := corpus{}
	c.add("a.jsonl", "first", "second", "third")
	x := fixture{shuffle: millrace.Blocks, limit: 6} // a record a block
	s := x.open(t, c.write(t))
	f := New(s, Position{}, order.Stripe{Of: 1}, Config{})
	f.ahead.memory.quota = budget.New(1 << 20).Open(func() {})
	r := f.ahead.blocks
	defer func() { r.far.close() }()
	scan, _, err := r.addUntil(3)
	if scan == nil || err != nil {
		t.Fatalf("the first block is not scanned: %v", err)
	}
	s.AddBlock(r.next, 0, order.BlockSize{Records: 1, Raw: 6})
	if act, added, err := r.addUntil(3); act != nil || added || err != nil {
		t.Errorf("during the scan: action %v, added %v, error %v; want to wait", act, added, err)
	}
	if err := scan.work(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := scan.settle(); err != nil || r.next.Ordinal != 1 {
		t.Errorf("after the scan of one record: next ordinal %d, %v", r.next.Ordinal, err)
	}
}

// read reads a block and returns a pointer that does not keep it.
func read(t *testing.T, scan *decode.Scan, s *sources.Source) weak.Pointer[decode.Text] {
	t.Helper()
	text, err := scan.Read(t.Context(), s, decode.Store{}, budget.NewLarge(), decode.Wanted{Most: 1 << 20})
	if err != nil || text == nil || text.Records() != 1 {
		t.Fatalf("read a block: %v, %v", text, err)
	}
	scan.Pass(text)
	return weak.Make(text)
}

func awaitCollection(t *testing.T, block int, text weak.Pointer[decode.Text]) {
	t.Helper()
	for until := time.Now().Add(5 * time.Second); text.Value() != nil; runtime.GC() {
		if time.Now().After(until) {
			t.Fatalf("the text of block %d is still in use", block)
		}
	}
}
