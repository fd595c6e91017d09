package parquet

import "testing"

// TestPagesAreBounded: the readers of many shards keep at most the set's bytes, the last used ones. A closed shard
// keeps none.
func TestPagesAreBounded(t *testing.T) {
	const most = 1 << 20
	k := NewPages(most)
	shards := make([]*shard, 100)
	for i := range shards {
		shards[i] = &shard{text: &columnData{col: &column{}}, pages: k}
		r := k.take(shards[i])
		r.text.dict = make([]byte, 100_000)
		if k.give(r); k.bytes > most {
			t.Fatalf("%d shards keep %d bytes, more than %d", i+1, k.bytes, most)
		}
	}
	last := shards[len(shards)-1]
	r := k.take(last)
	if len(r.text.dict) == 0 {
		t.Error("the last used reader was dropped")
	}
	r.text.dict = make([]byte, most+1)
	if k.give(r); k.take(last) == r {
		t.Error("a reader larger than the set is kept")
	}
	for _, s := range shards {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if k.bytes != 0 || len(k.idle) != 0 {
		t.Errorf("closed shards keep %d bytes in %d readers", k.bytes, len(k.idle))
	}
}
