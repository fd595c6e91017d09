package orchestrator

import (
	"strings"
	"testing"
)

// TestOtherOrderIsWarnedOf: one line for a source whose files do not allow the order that was asked for, and status has the reason.
func TestOtherOrderIsWarnedOf(t *testing.T) {
	w := newWorld(t, 1)
	w.connect()
	if !w.m.pinned() {
		t.Fatal("the world has no manifests")
	}
	web := w.m.s.Manifests["web"]
	web.Shuffle, web.Why, w.m.warned = "blocks", "web/a.jsonl.zst can only be streamed", false
	w.m.warnShuffle()
	w.m.warnShuffle()
	var lines []string
	for _, a := range w.m.Actions() {
		if strings.Contains(a.Line, "shuffled in blocks") {
			lines = append(lines, a.Line)
		}
	}
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "warning: source web is shuffled in blocks, not globally: web/a.jsonl.zst can only be streamed; ") {
		t.Errorf("said %q", lines)
	}
	if s := w.m.Status().Sources["web"]; s.Shuffle != "blocks" || s.Why != web.Why {
		t.Errorf("status has %v", s)
	}
}
