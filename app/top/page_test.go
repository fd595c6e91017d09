package top

import (
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"millrace/app/report"
	"millrace/app/supervisor"
)

// history has two samples of this process's own run, four seconds apart.
func history() *History {
	h := &History{}
	for i, at := range []time.Time{time.Unix(1000, 0), time.Unix(1004, 0)} {
		v := report.NewStatus([]supervisor.Role{{Role: "loader", Name: "loader-0", Pid: os.Getpid()}}, true)
		step, planned := uint64(100+20*i), uint64(130+20*i)
		v.Step, v.Planned = &step, &planned
		v.Sources["web"] = report.Source{Tokens: uint64(i) * 6e6, Share: 0.75}
		v.Sources["a\x1b[2Jb"] = report.Source{Tokens: uint64(i) * 2e6, Share: 0.25}
		v.Alerts = append(v.Alerts, report.Alert{Text: "the disk is nearly full"})
		h.Add(at, v)
	}
	return h
}

func TestPage(t *testing.T) {
	page := history().Page("runs/a", 100, 30)
	text := strings.Join(page, "\n")
	for _, want := range []string{"step 120, 30 planned ahead, attempt 0, 5.0 steps/s, 2.00 M tokens/s",
		"warning: the disk is nearly full", "1.50 M", "loader-0", "MiB"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Error("a source's name controls the terminal")
	}
	if len(page) != 30 || page[29] != "q: quit" {
		t.Errorf("%d lines", len(page))
	}
}

func TestAPageFitsEveryTerminal(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {20, 2}, {40, 5}, {300, 100}} {
		page := history().Page("runs/a", size[0], size[1])
		if len(page) > size[1] {
			t.Errorf("%d lines on a terminal of %v", len(page), size)
		}
		for _, line := range page {
			if utf8.RuneCountInString(line) > size[0] {
				t.Errorf("%q on a terminal of %v", line, size)
			}
		}
	}
}

func TestLine(t *testing.T) {
	line := history().Line()
	if !strings.Contains(line, "5.0 steps/s") || !strings.Contains(line, "disk is nearly full") {
		t.Error(line)
	}
}
