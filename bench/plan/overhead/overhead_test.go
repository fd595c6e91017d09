package overhead

import (
	"math"
	"testing"
)

// The expected overheads of the small grid were computed by hand.
func TestOverheads(t *testing.T) {
	g := &Grid{Ranks: 2, Columns: 2, Load: []float64{3, 1, 2, 2}}
	want := Percent{FSDP: 25, DP: 0, PP8: 100 * ((4+7*3)/(4*4.5) - 1)}
	if got := g.Overheads(); math.Abs(got.FSDP-want.FSDP)+math.Abs(got.DP-want.DP)+math.Abs(got.PP8-want.PP8) > 1e-9 {
		t.Errorf("overheads %+v, want %+v", got, want)
	}
}
