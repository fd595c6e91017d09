package orchestrator

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/orchestrator/placer"
	"millrace/orchestrator/placer/keeper"
	"millrace/orchestrator/scale"
	"millrace/proto"
)

// goals takes the decisions until none is left, and returns the numbers of loaders that the engine was asked for, and
// the lines for people.
func (w *world) goals() (goals []int, lines []string) {
	w.t.Helper()
	for {
		d := w.m.Decide()
		w.m.Apply(d)
		for _, a := range w.m.Actions() {
			if a.Loaders > 0 {
				goals = append(goals, a.Loaders)
			} else if a.Line != "" {
				lines = append(lines, a.Line)
			}
		}
		if d.IsEmpty() {
			return goals, lines
		}
	}
}

// TestTheNumberOfLoadersFollowsTheWaits: the engine is asked once it is known, and again when ranks wait. Plans and
// journal are not touched.
func TestTheNumberOfLoadersFollowsTheWaits(t *testing.T) {
	w := newWorld(t, 2)
	w.cfg.Elastic = &Elastic{Limits: scale.Limits{Min: 1, Max: 8}}
	w.restart()
	w.connect()
	w.joinAll("fresh", nil)
	if goals, _ := w.goals(); len(goals) > 0 {
		t.Fatalf("an engine that is not known was asked for %v", goals)
	}
	w.m.placed(keeper.News{Exist: []placer.Instance{{Role: "loader", Name: "loader-0", State: placer.Running},
		{Role: "loader", Name: "loader-1", State: placer.Ending}, {Role: "sidecar", Name: "sidecar-0"}}})
	if goals, lines := w.goals(); !slices.Equal(goals, []int{1}) || len(lines) > 0 {
		t.Fatalf("a known engine was asked for %v, and people heard %q", goals, lines)
	}
	records := len(w.journal)
	var goals []int
	var lines []string
	for second := range 10 {
		now := time.Unix(int64(1000+second), 0)
		w.m.Tick(now)
		w.m.figures.Observe(&proto.Figures{Role: "loader-0", Pid: 1, Lanes: 2, Wall: int64(second) * 1e9,
			Sources: []*proto.SourceFigures{{Source: "web", Kind: []string{"read"},
				Seconds: []float64{float64(2 * second)}, Tokens: int64(second), Documents: int64(second)}}})
		w.m.figures.Observe(&proto.Figures{Role: "sidecar-0", Pid: 2, Ranks: []*proto.RankFigures{{
			Waited: float64(second), Waiting: &proto.Activity{Kind: "read", Source: "web"}}}})
		g, l := w.goals()
		goals, lines = append(goals, g...), append(lines, l...)
	}
	if !slices.Equal(goals, []int{2}) {
		t.Errorf("the engine was asked for %v while ranks wait, want twice as many loaders", goals)
	}
	said := slices.IndexFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, "scale: 2 loaders instead of 1: ranks waited") && strings.Contains(line, "web")
	})
	if said < 0 || len(w.journal) != records {
		t.Errorf("people heard %q; %d records were journaled", lines, len(w.journal)-records)
	}
	w.m.placed(keeper.News{Err: errors.New("engine: role loader: no room: add a host")})
	s := w.m.Status().Scaling
	if s.Wished != 2 || s.Min != 1 || s.Max != 8 || s.Why == "" || s.Changed == 0 || s.Trouble == "" {
		t.Errorf("the status is %v", s)
	}
	if !slices.ContainsFunc(w.m.lacking(), func(c condition) bool { return c.kind == "scale" }) {
		t.Error("no alert says that the engine refuses")
	}
	w.m.placed(keeper.News{})
	if s := w.m.Status().Scaling; s.Trouble != "" {
		t.Errorf("the trouble is over, and the status says %q", s.Trouble)
	}
}

// TestAFixedNumberOfLoadersStays: no engine is asked.
func TestAFixedNumberOfLoadersStays(t *testing.T) {
	w := newWorld(t, 2)
	w.m.placed(keeper.News{Exist: []placer.Instance{}})
	w.m.Tick(time.Unix(1000, 0))
	if goals, _ := w.goals(); len(goals) > 0 || w.m.Status().Scaling != nil {
		t.Errorf("the engine was asked for %v", goals)
	}
}
