package millrace

import "testing"

func TestColumns(t *testing.T) {
	for _, tt := range []struct{ length, parts, pad, want uint32 }{
		{10, 0, 1, 10}, {10, 0, 4, 12}, {12, 0, 4, 12}, {1, 3, 1, 2}, {100, 3, 1, 34}, {100, 3, 16, 64},
		{96, 3, 16, 32}, {1 << 24, 1, 1, 1 << 24},
	} {
		a := Assignment{Segment: Segment{Length: tt.length}, Parts: tt.parts}
		if got := a.Columns(tt.pad); got != tt.want {
			t.Errorf("%d tokens in %d parts, padded to %d: %d columns, want %d", tt.length, tt.parts, tt.pad, got,
				tt.want)
		}
		if got := max(tt.parts, 1) * a.Columns(tt.pad); got < tt.length {
			t.Errorf("%d tokens do not fit %d columns", tt.length, got)
		}
	}
}
