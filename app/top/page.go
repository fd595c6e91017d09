package top

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"millrace/app/report"
)

// Line describes the newest sample in one line, for output that is no terminal.
func (h *History) Line() string {
	s := h.Newest()
	parts := []string{s.At.Format(time.TimeOnly), h.progress(s.Status)}
	if s.Status.Waiting != "" {
		parts = append(parts, "waiting: "+s.Status.Waiting)
	}
	for i := range s.Status.Alerts {
		parts = append(parts, "warning: "+s.Status.Alerts[i].Text)
	}
	return strings.Join(parts, "  ")
}

// Page describes the newest sample for a terminal: at most height lines of at most width characters. The last line
// has the keys.
func (h *History) Page(dir string, width, height int) []string {
	s := h.Newest()
	lines := []string{fmt.Sprintf("millrace top %s  %s", dir, s.At.Format(time.TimeOnly)), h.progress(s.Status)}
	if s.Status.Waiting != "" {
		lines = append(lines, "waiting: "+s.Status.Waiting)
	}
	for i := range s.Status.Alerts {
		lines = append(lines, "warning: "+s.Status.Alerts[i].Text)
	}
	for _, part := range [][]string{h.ranks(s), h.sources(s), h.gpus(s), h.roles(s)} {
		lines = append(lines, part...)
	}
	if len(lines) > height-1 {
		shown := max(height-2, 0)
		lines = append(lines[:shown:shown], fmt.Sprintf("… %d more lines", len(lines)-shown))
	}
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	if height > 1 {
		lines = append(lines, "q: quit")
	}
	for i, line := range lines {
		lines[i] = clip(line, width)
	}
	return lines
}

// progress names the step and the rates.
func (h *History) progress(v *report.Status) string {
	if v.Step == nil {
		return "step unknown"
	}
	out := fmt.Sprintf("step %d, %d planned ahead, attempt %d", *v.Step, *v.Planned-min(*v.Planned, *v.Step), v.Attempt)
	steps, known := h.rate(func(s Sample) (float64, bool) {
		if s.Status.Step == nil {
			return 0, false
		}
		return float64(*s.Status.Step), true
	})
	if !known {
		return out
	}
	tokens := 0.0
	for name := range v.Sources {
		perSecond, _ := h.rate(tokensOf(name))
		tokens += perSecond
	}
	return fmt.Sprintf("%s, %.1f steps/s, %s tokens/s", out, steps, number(tokens))
}

// tokensOf counts the tokens of a source.
func tokensOf(source string) func(Sample) (float64, bool) {
	return func(s Sample) (float64, bool) {
		src, ok := s.Status.Sources[source]
		return float64(src.Tokens), ok
	}
}

// ranks describes the waits of the trainers.
func (h *History) ranks(s Sample) []string {
	d := s.Status.Delivery
	if d == nil {
		return nil
	}
	rows := []string{report.Row("RANK", "WAITED (LAST MINUTE)", "STEPS READY", "WAITS NOW FOR")}
	for _, r := range d.Ranks {
		now := "-"
		if r.Waiting != nil && r.WaitingFor >= 1 {
			now = fmt.Sprintf("%.0f s: %s", r.WaitingFor, r.Waiting.Text)
		}
		rows = append(rows, report.Row(r.Rank, report.Percent(r.Share), r.Buffered, now))
	}
	return table(rows)
}

func (h *History) sources(s Sample) []string {
	rows := []string{report.Row("SOURCE", "TOKENS", "TOKENS/S", "SHARE", "WEIGHT", "EPOCH")}
	weights := map[string]string{}
	if m := s.Status.Mixture; m != nil {
		for name, w := range m.Weights {
			weights[name] = report.Percent(w)
		}
	}
	for _, name := range report.Names(s.Status.Sources) {
		src := s.Status.Sources[name]
		rate := "-"
		if perSecond, known := h.rate(tokensOf(name)); known {
			rate = number(perSecond)
		}
		rows = append(rows, report.Row(name, report.Count(src.Tokens), rate, report.Percent(src.Share), weights[name],
			src.Epoch))
	}
	return table(rows)
}

func (h *History) gpus(s Sample) []string {
	var out strings.Builder
	if err := s.Status.PrintGPUs(&out); err != nil || out.Len() == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
}

func (h *History) roles(s Sample) []string {
	rows := []string{report.Row("ROLE", "NAME", "PID", "STATE", "CPU", "PSS", "RESTARTS")}
	for _, r := range s.Status.Roles {
		cpu, pss := "-", "-"
		if used, known := h.rate(func(s Sample) (float64, bool) {
			used, ok := s.CPU[r.Pid]
			return used.Seconds(), ok
		}); known {
			cpu = fmt.Sprintf("%.0f%%", 100*used)
		}
		if bytes, ok := s.PSS[r.Pid]; ok {
			pss = report.Size(bytes)
		}
		rows = append(rows, report.Row(r.Role, r.Name, r.Pid, r.State, cpu, pss, r.Restarts))
	}
	return table(rows)
}

// table aligns rows below an empty line. It returns nothing if there is only a heading.
func table(rows []string) []string {
	if len(rows) < 2 {
		return nil
	}
	var out strings.Builder
	_ = report.Table(&out, rows...) // a strings.Builder takes everything
	return append([]string{""}, strings.Split(strings.TrimRight(out.String(), "\n"), "\n")...)
}

// number writes a rate without false precision.
func number(x float64) string {
	switch {
	case x >= 1e6:
		return fmt.Sprintf("%.2f M", x/1e6)
	case x >= 1e4:
		return fmt.Sprintf("%.1f k", x/1e3)
	}
	return fmt.Sprintf("%.0f", x)
}

// clip cuts a line to a width. A name from a damaged file may hold control characters, which a terminal would obey.
func clip(line string, width int) string {
	line = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(line, "?"))
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:max(width, 0)])
}
