package tokenid

import (
	"bytes"
	"slices"
	"testing"
)

// TestIDs: ids that are aligned stay where they are, and all others are copied.
func TestIDs(t *testing.T) {
	ids := []uint32{7, 1 << 16, Untrained | 3}
	memory := make([]byte, 16)
	for at := range 4 {
		b := memory[at : at+12]
		copy(b, Bytes(ids))
		got := IDs[uint32](b)
		if !slices.Equal(got, ids) {
			t.Fatalf("at %d: got %v, want %v", at, got, ids)
		}
		if isSame := &Bytes(got)[0] == &b[0]; isSame != (at == 0) {
			t.Errorf("at %d: in place: %v", at, isSame)
		}
		if narrow := IDs[uint16](b); !bytes.Equal(Bytes(narrow), b) {
			t.Errorf("at %d: got %v", at, narrow)
		}
	}
	if got := IDs[uint16](nil); len(got) != 0 {
		t.Errorf("no bytes are the ids %v", got)
	}
}
