package orchestrator

import (
	"slices"
	"strings"
	"testing"
)

// TestAnotherOrderIsWarnedOf: one line for a source whose files do not allow the requested order. Status has the
// reason.
func TestAnotherOrderIsWarnedOf(t *testing.T) {
	w := newWorld(t, 1)
	w.connect()
	if !w.m.pinned() {
		t.Fatal("the world has no manifests")
	}
	web := w.m.s.Manifests["web"]
	web.Shuffle, web.Why, w.m.alerts.warned = "blocks", "web/a.jsonl.zst can only be streamed", false
	w.lines = nil
	w.turn()
	w.turn()
	lines := slices.DeleteFunc(w.lines, func(line string) bool { return !strings.Contains(line, "shuffled in blocks") })
	if len(lines) != 1 ||
		!strings.HasPrefix(lines[0],
			"warning: source web is shuffled in blocks, not globally: web/a.jsonl.zst can only be streamed; ") {
		t.Errorf("printed %q", lines)
	}
	if s := w.m.Status().Sources["web"]; s.Shuffle != "blocks" || s.Why != web.Why {
		t.Errorf("status has %v", s)
	}
}
