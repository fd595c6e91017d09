package millrace

import "testing"

// TestCoordinates: the ranks of the world count through the axes, tensor parallelism fastest, and every place has one
// rank.
func TestCoordinates(t *testing.T) {
	for _, topo := range []Topology{
		{1, 1, 1, 1}, {8, 2, 2, 1}, {24, 2, 3, 2}, {6, 1, 1, 3}, {30, 5, 1, 2}, {16, 1, 4, 1},
	} {
		rank := Rank(0)
		for pp := range topo.PP {
			for dp := range topo.DP() {
				for cp := range topo.CP {
					for tp := range topo.TP {
						want := Coordinates{TP: tp, CP: cp, DP: dp, PP: pp}
						if got := topo.Coordinates(rank); got != want || topo.Rank(want) != rank {
							t.Fatalf("%+v: rank %d is at %+v, want %+v, which is rank %d", topo, rank, got, want,
								topo.Rank(want))
						}
						rank++
					}
				}
			}
		}
		if int(rank) != topo.Ranks {
			t.Errorf("%+v has %d places", topo, rank)
		}
	}
}
