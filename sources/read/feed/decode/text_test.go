package decode

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"millrace/sources"
)

// everything is the wish for all records of a text in memory.
func everything() Wanted { return Wanted{Most: 1 << 40} }

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
	text := &Text{first: 7, wanted: everything()}
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
		got, err := text.record(uint32(i), Store{}, &buf, nil)
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
	text := &Text{tokens: true, wanted: everything()}
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
		if got, err := text.record(uint32(i), Store{}, &buf, scratch); err != nil || !slices.Equal(got.Tokens, want) {
			t.Fatalf("record %d has tokens %v, want %v", i, got.Tokens, want)
		}
	}
}

// TestSlabsAreReused: a text fills its slabs. They serve the next text, up to the capacity.
func TestSlabsAreReused(t *testing.T) {
	slabs := make(Slabs, 2)
	store := Store{Slabs: slabs}
	text := &Text{wanted: everything()}
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
	if got := InFileOrder(slots, nil); !slices.Equal(got, want) {
		t.Fatalf("entries %v, want %v", got, want)
	}
}

// TestTextsWithoutRoom: a text that finds no room in a file takes no more memory than it may. A text of some records
// holds these. Both count all records and their bytes.
func TestTextsWithoutRoom(t *testing.T) {
	const records, most = 1000, 3 * SlabBytes
	made := func(wanted Wanted) (*Text, int64) {
		text, peak := &Text{first: 5, wanted: wanted}, int64(0)
		for n := range records {
			r := sources.Record{Offset: int64(n), Raw: 10_000, Text: bytes.Repeat([]byte{byte(n)}, 9000)}
			if n%10 == 3 {
				r = sources.Record{Offset: int64(n), Raw: 10_000, Err: errors.New("bad")}
			}
			text.add(&r, Store{})
			peak = max(peak, text.Size())
		}
		text.finish(Store{})
		if text.Records() != records || text.Raw() != records*10_000 {
			t.Errorf("%d records of %d bytes, want all", text.Records(), text.Raw())
		}
		return text, peak
	}
	text, peak := made(Wanted{Most: most})
	if !text.IsHollow() || text.Size() != 0 || peak > most+2*SlabBytes {
		t.Errorf("hollow: %v, at most %d bytes, then %d", text.IsHollow(), peak, text.Size())
	}
	if _, err := text.find(5); err == nil {
		t.Error("a text without records has one")
	}
	text, _ = made(Wanted{Most: most, Only: func(record uint64) bool { return record%100 == 8 || record%100 == 10 }})
	if text.IsHollow() || text.Size() > 20*9000+SlabBytes {
		t.Errorf("hollow: %v, %d bytes", text.IsHollow(), text.Size())
	}
	var buf []byte
	for number := uint64(5); number < 5+records; number++ {
		at, err := text.find(number)
		if isHeld := number%100 == 8 || number%100 == 10; isHeld != (err == nil) {
			t.Fatalf("record %d: %v", number, err)
		} else if !isHeld {
			continue
		}
		r, err := text.record(at, Store{}, &buf, nil)
		n := number - 5
		if err != nil || r.Number != number || r.Offset != int64(n) || (r.Err != nil) != (n%10 == 3) ||
			r.Err == nil && !bytes.Equal(r.Text, bytes.Repeat([]byte{byte(n)}, 9000)) {
			t.Fatalf("record %d is %.40v: %v", number, r, err)
		}
	}
}
