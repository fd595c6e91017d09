package extents

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"millrace"
	"millrace/sources"
)

// file is a file in memory that counts its reads.
type file struct {
	*bytes.Reader
	reads int
}

func (f *file) Name() string { return "records.bin" }

func (f *file) ReadAt(b []byte, at int64) (int, error) {
	f.reads++
	return f.Reader.ReadAt(b, at)
}

func fileOf(content string) *file { return &file{Reader: bytes.NewReader([]byte(content))} }

// tableOf returns the bytes of a table with its number of records.
func tableOf(offsets ...uint32) string {
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(offsets)-1))
	for _, o := range offsets {
		out = binary.LittleEndian.AppendUint32(out, o)
	}
	return string(out)
}

// plain is a decoder that takes the bytes as they are.
type plain struct{}

func (plain) Decode(r *sources.Record, w *Window, start, end int64) (err error) {
	r.Text, err = w.Fetch(start, end, end)
	return err
}

const content = "headAABBBBCdddddd" // records A, B, nothing, C and d behind four bytes

var places = []uint32{4, 6, 10, 10, 11, 17}

func shardOf(t *testing.T, f sources.File, limit int64) *Shard {
	t.Helper()
	table, _, err := ReadOffsets(t.Context(), fileOf(tableOf(places...)), 0)
	if err != nil {
		t.Fatal(err)
	}
	return &Shard{File: f, Table: table, Limit: limit, New: func() Decoder { return plain{} }}
}

// said collects records as text.
func said(out *strings.Builder) func(sources.Record) error {
	return func(r sources.Record) error {
		if fmt.Fprintf(out, " %d@%d:%s", r.Number, r.Offset, r.Text); r.Err != nil {
			out.WriteString("!")
		}
		return nil
	}
}

// TestShard: a scan and a read give the same records, from a file and from a stream. A record over the limit is bad.
func TestShard(t *testing.T) {
	for _, isStream := range []bool{false, true} {
		f := fileOf(content)
		s := shardOf(t, f, 4)
		if isStream {
			s.Stream = func() (io.ReadCloser, error) {
				return io.NopCloser(iotest.OneByteReader(strings.NewReader(content))), nil
			}
		}
		for from, want := range map[uint64]string{
			0: " 0@4:AA 1@6:BBBB 2@10: 3@10:C 4@11:!", 3: " 3@10:C 4@11:!", 5: "",
		} {
			var got strings.Builder
			if err := s.Scan(t.Context(), from, said(&got)); err != nil || got.String() != want {
				t.Errorf("stream %v: a scan from %d gives %q, %v; want %q", isStream, from, got.String(), err, want)
			}
		}
	}
	f := fileOf(content)
	s, got, want := shardOf(t, f, 0), strings.Builder{}, " 0@4:AA 1@6:BBBB 4@11:dddddd"
	if err := s.Read(t.Context(), []uint64{0, 1, 4}, said(&got)); err != nil || got.String() != want {
		t.Errorf("a read gives %q, %v; want %q", got.String(), err, want)
	}
	if f.reads != 1 {
		t.Errorf("records that lie together took %d reads", f.reads)
	}
	if err := s.Read(t.Context(), []uint64{5}, said(&got)); !errors.Is(err, millrace.ErrInvalid) {
		t.Errorf("a record behind the last one: %v", err)
	}
}

// TestReadsJoin: one read covers a gap between records, but no large one.
func TestReadsJoin(t *testing.T) {
	for gap, reads := range map[int]int{mostGap: 1, mostGap + 1: 2} {
		text := "one" + strings.Repeat("-", gap) + "two"
		table, _, err := ReadOffsets(t.Context(), fileOf(tableOf(0, 3, uint32(3+gap), uint32(6+gap))), 0)
		if err != nil {
			t.Fatal(err)
		}
		f, got := fileOf(text), strings.Builder{}
		s := &Shard{File: f, Table: table, New: func() Decoder { return plain{} }}
		err = s.Read(t.Context(), []uint64{0, 2}, said(&got))
		if want := fmt.Sprintf(" 0@0:one 2@%d:two", 3+gap); err != nil || got.String() != want || f.reads != reads {
			t.Errorf("a gap of %d: %q in %d reads, %v; want %q in %d", gap, got.String(), f.reads, err, want, reads)
		}
	}
}

// TestAStreamOfAnotherLength than its table's is damaged.
func TestAStreamOfAnotherLength(t *testing.T) {
	for _, text := range []string{content[:len(content)-1], content + "!"} {
		s := shardOf(t, fileOf(""), 0)
		s.Stream = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
		if err := s.Scan(t.Context(), 0, said(new(strings.Builder))); !errors.Is(err, millrace.ErrDamaged) {
			t.Errorf("a stream of %d bytes: %v", len(text), err)
		}
	}
}

// TestOffsets: a table of any size is read whole. One that descends, or does not fit into its file, is damaged.
func TestOffsets(t *testing.T) {
	var many []uint32
	for n := range uint32(3*tableRead/4 + 5) {
		many = append(many, 7*n)
	}
	o, behind, err := ReadOffsets(t.Context(), fileOf("??"+tableOf(many...)+"rest"), 2)
	if err != nil || o.Count() != uint64(len(many)-1) || behind != int64(2+4*(len(many)+1)) {
		t.Fatalf("%d records, the table ends at %d: %v", o.Count(), behind, err)
	}
	for _, n := range []uint64{0, tableRead / 4, o.Count() - 1} {
		if start, end := o.Extent(n); start != int64(7*n) || end != int64(7*n+7) {
			t.Errorf("record %d lies at %d … %d", n, start, end)
		}
	}
	if start, end := o.Bounds(); start != 0 || end != int64(many[len(many)-1]) {
		t.Errorf("the records lie at %d … %d", start, end)
	}
	packed, err := ReadPackedOffsets(fileOf(""), strings.NewReader(tableOf(many...)), 1<<20)
	if err != nil || !bytes.Equal(packed.bytes, o.bytes) {
		t.Errorf("the packed table has %d records, %v", packed.Count(), err)
	}
	_, err = ReadPackedOffsets(fileOf(""), strings.NewReader(tableOf(many...)), 1<<10)
	if !errors.Is(err, millrace.ErrDamaged) {
		t.Errorf("a packed table over its bound: %v", err)
	}
	late := append([]uint32(nil), many...)
	late[tableRead/4] = 1 // in the second read
	for name, bad := range map[string]string{
		"short":      tableOf(many...)[:100],
		"no table":   "abc",
		"descending": tableOf(0, 9, 8),
		"late":       tableOf(late...),
	} {
		if _, _, err := ReadOffsets(t.Context(), fileOf(bad), 0); !errors.Is(err, millrace.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestZeros: the first byte that is not zero is found in a file and in a stream, in reads of any size.
func TestZeros(t *testing.T) {
	for _, c := range []struct {
		zeros int
		rest  string
		want  int64
	}{
		{0, "x", 1}, {5, "x", 6}, {scanBytes + 3, "xy", scanBytes + 4}, {9, "", -1},
		{MostZeros + 9, "x" + strings.Repeat("\x00", scanBytes), MostZeros + 10},
		{2*MostZeros + 9, "x", 2*MostZeros + 10},
	} {
		text := "a" + strings.Repeat("\x00", c.zeros) + c.rest
		f := fileOf(text)
		stream := NewStream(f, iotest.HalfReader(strings.NewReader(text)))
		if _, err := stream.Fetch(0, 1, 1); err != nil {
			t.Fatal(err)
		}
		for name, w := range map[string]*Window{"file": {File: f}, "stream": stream} {
			if got, err := w.Zeros(1, int64(len(text))); err != nil || got != c.want {
				t.Errorf("%s, %d zeros: %d, %v; want %d", name, c.zeros, got, err, c.want)
			}
		}
	}
}

// TestHold: a stream keeps the bytes from a place on, and goes back no further.
func TestHold(t *testing.T) {
	w := NewStream(fileOf(""), strings.NewReader(content))
	w.Hold(4)
	for _, at := range [][2]int64{{4, 6}, {10, 11}, {4, 11}} {
		got, err := w.Fetch(at[0], at[1], at[1])
		if err != nil || string(got) != content[at[0]:at[1]] {
			t.Errorf("bytes %d … %d: %q, %v", at[0], at[1], got, err)
		}
	}
	w.Hold(-1)
	if _, err := w.Fetch(11, 12, 12); err != nil {
		t.Error(err)
	}
	if _, err := w.Fetch(4, 6, 6); err == nil {
		t.Error("a stream went back")
	}
	if ended, err := w.Ended(16); ended || err != nil {
		t.Errorf("it ends a byte early: %v, %v", ended, err)
	}
	if ended, err := w.Ended(17); !ended || err != nil {
		t.Errorf("it does not end at its end: %v, %v", ended, err)
	}
}

// values has a text, and others of which one may be bad.
type values struct {
	missing, bad error
}

func (v values) Text(b []byte) ([]byte, error, error) { return b, v.missing, nil }

func (v values) Other(i int, _ []byte) (any, error) {
	if i == 1 {
		return nil, v.bad
	}
	return i, nil
}

// TestFill: a bad value is the reason of a record before a text that is missing.
func TestFill(t *testing.T) {
	missing, bad := errors.New("missing"), errors.New("bad")
	for _, c := range []struct {
		v    values
		want error
	}{{values{}, nil}, {values{missing, nil}, missing}, {values{nil, bad}, bad}, {values{missing, bad}, bad}} {
		var r sources.Record
		Fill(&r, c.v, true, make([]any, 2), []byte("text"))
		if r.Err != c.want || c.want == nil && (string(r.Text) != "text" || len(r.Others) != 2 || r.Others[0] != 0) {
			t.Errorf("%+v: %v, %q, %v", c.v, r.Err, r.Text, r.Others)
		}
	}
}
