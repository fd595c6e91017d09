package wire

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"millrace"
	"millrace/proto"

	pb "google.golang.org/protobuf/proto"
)

func TestPlanRoundTrip(t *testing.T) {
	p := &millrace.Plan{
		Stream:         millrace.Train,
		Attempt:        2,
		Step:           41200,
		Term:           7,
		Ranks:          2,
		Microbatches:   1,
		SequenceLength: 2048,
		MicroBatch:     4,
		Last:           true,
		Content:        millrace.Digest{1},
		Placement:      millrace.Digest{2},
		Leaves:         []millrace.Digest{{3}, {4}},
		Held:           []millrace.Rank{3, 4},
		Proof:          []millrace.Digest{{5}},
		Labels:         6,
	}
	for i := range 9 {
		p.Assignments = append(
			p.Assignments,
			millrace.Assignment{
				Rank:       millrace.Rank(i / 5),
				Row:        uint32(i),
				Start:      3,
				Microbatch: 1,
				Part:       uint32(i % 2),
				Parts:      2,
				Holder:     uint32(i),
				Segment: millrace.Segment{
					Source:  1,
					Ordinal: 1 << 40,
					Epoch:   3,
					ID:      millrace.SampleID{Shard: 5, Record: 1 << 33},
					Offset:  2048,
					Length:  17,
					Patches: uint32(i % 3),
					More:    i%2 == 0,
				},
			},
		)
	}
	raw, err := pb.Marshal(PlanToProto(p, []byte("{}")))
	if err != nil {
		t.Fatal(err)
	}
	var m proto.Plan
	if err := pb.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	got, err := PlanFromProto(&m)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, p) {
		t.Fatalf("got %+v\nwant %+v", got, p)
	}
	m.Assignments.Row = m.Assignments.Row[1:]
	if _, err := PlanFromProto(&m); err == nil {
		t.Fatal("a short column was accepted")
	}
}

func TestManifestAndSeekPointRoundTrip(t *testing.T) {
	m := &millrace.Manifest{
		Source:      "web",
		Format:      "jsonl",
		Shuffle:     millrace.Blocks,
		Why:         "a.gz can only be streamed",
		Fingerprint: millrace.Digest{9},
		Shards: []millrace.Shard{
			{Name: "a.gz", Path: "/x/a.gz", Size: 9, Digest: millrace.Digest{8}, Count: 3, Counted: true},
			{Name: "b/a.gz", Path: "/x/b/a.gz", Size: 1 << 40, Digest: millrace.Digest{7}},
			{Name: "b/ä", Path: "/x/b/ä", Counted: true},
			{Name: "b/ö", Path: "/x/b/ö", Digest: millrace.Digest{15: 1}, Count: 7, Counted: true},
		},
	}
	packed := ManifestToProto(m)
	if got := ManifestFromProto(packed); !reflect.DeepEqual(got, m) {
		t.Fatalf("got %+v", got)
	}
	names := []string{"a.gz", "b/a.gz", "b/ä", "b/ö"}
	records, counted := CountRecords(packed)
	if CountShards(packed) != 4 || records != 10 || counted || !slices.Equal(ShardNames(NamesOnly(packed)), names) {
		t.Fatalf("%d shards, %d records, %v, names %q", CountShards(packed), records, counted, ShardNames(packed))
	}
	for n := range packed.Table.Names { // a list that is cut has the first of its texts
		if got := decodeTexts(packed.Table.Names[:n]); !slices.Equal(got, names[:len(got)]) {
			t.Fatalf("cut at %d: %q", n, got)
		}
	}
	old := &proto.Manifest{Source: "web", Shards: []*proto.Shard{
		{
			Name:    "a",
			Path:    "/x/a",
			Size:    3,
			Digest:  make([]byte, 16),
			Count:   5,
			Counted: true,
		}, {Name: "b", Path: "/x/b"},
	}}
	if records, counted := CountRecords(old); records != 5 || counted || CountShards(old) != 2 ||
		!slices.Equal(ShardNames(NamesOnly(old)), []string{"a", "b"}) ||
		!reflect.DeepEqual(ManifestFromProto(ManifestToProto(ManifestFromProto(old))), ManifestFromProto(old)) {
		t.Fatalf("a manifest of an earlier run: %d records, %v", records, counted)
	}
	a := millrace.SeekPoint{Ordinal: 1, Epoch: 2, EpochStart: 3, Shard: 4, Block: 5, Record: 6}
	if got := SeekPointFromProto(SeekPointToProto(a)); got != a {
		t.Fatalf("got %+v", got)
	}
}

// unread is an error about one document, like sources.SampleError.
type unread struct{ ordinal millrace.Ordinal }

func (e *unread) Error() string { return fmt.Sprintf("ordinal %d", e.ordinal) }
func (e *unread) Unwrap() error { return millrace.ErrBadSample }
func (e *unread) Sample() (millrace.Ordinal, millrace.Quarantine) {
	return e.ordinal, millrace.Quarantine{Source: "web", ID: "a#1", Offset: 7, Reason: "bad"}
}

// TestBadSamplesAreNamed: the error names every document of joined and wrapped errors.
func TestBadSamplesAreNamed(t *testing.T) {
	var many error
	for i := range millrace.Ordinal(2 * maxSamples) {
		many = errors.Join(many, fmt.Errorf("fetch: %w", &unread{i}))
	}
	var bad *BadSamples
	if got := FromPartFailed(PartFailed(3, many)); !errors.As(got, &bad) || !errors.Is(got, millrace.ErrBadSample) ||
		len(bad.Samples) != maxSamples {
		t.Fatalf("%d samples came", len(bad.Samples))
	}
	for i, q := range bad.Samples {
		if q.Ordinal != uint64(i) || q.Source != "web" || q.Id != "a#1" || q.Offset != 7 || q.Reason != "bad" {
			t.Fatalf("sample %d is %v", i, q)
		}
	}
	if got := FromPartFailed(PartFailed(0, millrace.Errorf(millrace.ErrBadSample, "x"))); errors.As(got, &bad) ||
		!errors.Is(got, millrace.ErrBadSample) {
		t.Fatalf("without a name it is %v", got)
	}
}

func TestErrorsKeepTheirSentinel(t *testing.T) {
	for _, row := range table {
		err := fmt.Errorf("read web/a.gz: %w", row.err)
		got := FromStatus(ToStatus(err))
		if !errors.Is(got, row.err) || got.Error() != err.Error() {
			t.Errorf("%v became %q", err, got)
		}
	}
	if ToStatus(nil) != nil || FromStatus(nil) != nil {
		t.Error("nil did not stay nil")
	}
}
