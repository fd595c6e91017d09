package decode

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"millrace/sources"
)

// TestTextReturnsItsRecords: records of all sizes, bad ones among them, come back as they were added, with their
// offsets and other values.
func TestTextReturnsItsRecords(t *testing.T) {
	bad := errors.New("bad")
	long := bytes.Repeat([]byte("long "), SlabBytes/4)
	in := []sources.Record{
		{Offset: 0, Raw: 4, Err: bad},
		{Offset: 4, Raw: 6, Text: []byte("first"), Others: []any{"en", 3}},
		{Offset: 10, Raw: int64(len(long)), Text: long, Others: []any{"de", 4}},
		{Offset: 20, Raw: 1, Text: nil, Others: []any{"", 5}},
		{Offset: 21, Raw: 5, Text: []byte("last"), Others: []any{"fr", 6}},
	}
	text := &Text{first: 7}
	var raw uint64
	for i := range in {
		text.add(&in[i], Store{})
		raw += uint64(in[i].Raw)
	}
	if text.Records() != uint64(len(in)) || text.Raw() != raw || text.Size() < int64(len(long)) {
		t.Fatalf("%d records, %d raw bytes, %d bytes", text.Records(), text.Raw(), text.Size())
	}
	for i, want := range in {
		var buf []byte
		got, err := text.record(7+uint64(i), Store{}, &buf, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got.Number != 7+uint64(i) || got.Offset != want.Offset || got.Err != want.Err ||
			!bytes.Equal(got.Text, want.Text) {
			t.Fatalf("record %d is %.40v, want %.40v", i, got, want)
		}
		if want.Err == nil && !slices.Equal(got.Others, want.Others) {
			t.Fatalf("record %d has values %v, want %v", i, got.Others, want.Others)
		}
	}
}

// TestTextReturnsItsTokens: the tokens of a record come back behind the scratch of the caller.
func TestTextReturnsItsTokens(t *testing.T) {
	text := &Text{tokens: true}
	many := make([]uint32, SlabBytes/2)
	for i := range many {
		many[i] = uint32(i)
	}
	in := [][]uint32{{1, 2, 1 << 31}, nil, {7}, many, {8}}
	for i, tokens := range in {
		text.add(&sources.Record{Number: uint64(i), Tokens: tokens}, Store{})
	}
	scratch := make([]uint32, 0, 8)
	for i, want := range in {
		var buf []byte
		if got, err := text.record(uint64(i), Store{}, &buf, scratch); err != nil || !slices.Equal(got.Tokens, want) {
			t.Fatalf("record %d has tokens %v, want %v", i, got.Tokens, want)
		}
	}
}

// TestSlabsAreReused: a text fills its slabs. They serve the next text, up to the capacity.
func TestSlabsAreReused(t *testing.T) {
	slabs := make(Slabs, 2)
	store := Store{Slabs: slabs}
	text := &Text{}
	for range 8 {
		text.add(&sources.Record{Text: make([]byte, SlabBytes/2-1)}, store)
		text.add(&sources.Record{Text: make([]byte, SlabBytes/2+1)}, store)
	}
	if got := text.Size() / SlabBytes; got != 8 {
		t.Errorf("records of 8 slabs take the memory of %d", got)
	}
	text.Recycle(store)
	if len(slabs) != 2 {
		t.Fatalf("%d slabs are kept, want 2", len(slabs))
	}
	if slab := slabs.take(); len(slab) != 0 || cap(slab) != SlabBytes {
		t.Fatalf("a slab has %d of %d bytes, want 0 of %d", len(slab), cap(slab), SlabBytes)
	}
	var none Slabs
	if slab := none.take(); len(slab) != 0 || cap(slab) != SlabBytes {
		t.Fatal("want a new slab without a store")
	}
}

// TestInFileOrder: entries lie in the order shard, record, start, slot.
func TestInFileOrder(t *testing.T) {
	slots := []Slot{
		{Shard: 2, Record: 1}, {Shard: 0, Record: 9, Start: 8}, {Shard: 0, Record: 3}, {Shard: 0, Record: 9},
		{Shard: 0, Record: 9},
	}
	want := []Entry{{record: 3, slot: 2}, {record: 9, slot: 3}, {record: 9, slot: 4}, {record: 9, start: 8, slot: 1},
		{record: 1, shard: 2}}
	if got := InFileOrder(slots); !slices.Equal(got, want) {
		t.Fatalf("entries %v, want %v", got, want)
	}
}
