package ledger

import (
	"testing"

	"millrace/checkpoint"
	"millrace/proto"
)

// TestEntryThatIsNotWhole: an entry without room for all sources says that it is not whole.
func TestEntryThatIsNotWhole(t *testing.T) {
	for _, n := range []int{0, 1, 200, 1000} {
		p := &proto.Plan{Content: make([]byte, 16), Placement: make([]byte, 16), Assignments: &proto.Assignments{}}
		for i := range n {
			p.Assignments.Source = append(p.Assignments.Source, uint32(2*i), uint32(2*i))
			p.Assignments.Ordinal = append(p.Assignments.Ordinal, 1<<32+uint64(i)+7, 1<<32)
		}
		raw := NewEntry(p, make([]byte, 16)).Encode()
		e, err := decodeEntry(raw)
		if err != nil || len(raw) > checkpoint.MaxDigest || e.whole != (n <= 200) || len(e.ranges) < min(n, 200) {
			t.Fatalf("%d sources: %d bytes, %v, %v", n, len(raw), e, err)
		}
		for i, r := range e.ranges {
			if r.Source != uint32(2*i) || r.From != 1<<32 || r.To != 1<<32+uint64(i)+7 {
				t.Fatalf("range %d is %v", i, r)
			}
		}
		for cut := range raw {
			if e, err := decodeEntry(raw[:cut]); err == nil && len(e.ranges) >= n && n > 0 {
				t.Fatalf("%d of %d bytes are accepted", cut, len(raw))
			}
		}
	}
}
