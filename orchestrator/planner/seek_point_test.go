package planner_test

import (
	"testing"

	"millrace"
	"millrace/orchestrator/planner/plannertest"
	"millrace/orchestrator/planner/progress"
)

// anchored is a corpus in blocks of ten ordinals.
type anchored struct{ *plannertest.Corpus }

func (a anchored) SeekPoint(source int, at millrace.Ordinal) millrace.SeekPoint {
	start := at - at%10
	return millrace.SeekPoint{Ordinal: start, Block: uint32(start / 10), Record: 1}
}

func TestSeekPointsFollowTheCursor(t *testing.T) {
	spec := plannertest.NewSpec(t, 10, 4, "1")
	docs := make([]millrace.SampleMeta, 100)
	for i := range docs {
		docs[i] = plannertest.Document(i, 10)
	}
	steps, _, err := plannertest.Collect(t, spec, progress.New(1),
		anchored{&plannertest.Corpus{Docs: [][]millrace.SampleMeta{docs}, Epochs: []uint64{1}}}, 7)
	if err != nil {
		t.Fatal(err)
	}
	if src := steps[6].After.Sources[0]; src.Ordinal != 28 || src.SeekPoint.Ordinal != 20 || src.SeekPoint.Block != 2 {
		t.Errorf("after 28 documents the state is %+v", src)
	}
}
