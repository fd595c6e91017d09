package bench

import (
	"strings"
	"testing"
	"time"
)

// TestTheLimitIsNamed: by the CPU of the roles and of the host.
func TestTheLimitIsNamed(t *testing.T) {
	role := func(name string, processes int, cores float64) Role {
		return Role{Role: name, Processes: processes, Cores: cores}
	}
	for name, c := range map[string]struct {
		busy  float64
		roles []Role
		waits string
		want  string
	}{
		"all CPUs":        {7.9, []Role{role("loader", 2, 6), role("sidecar", 1, 1)}, "", "the CPUs of this host: 7.9"},
		"other processes": {7.9, []Role{role("loader", 2, 2)}, "", "other processes"},
		"one process":     {2, []Role{role("loader", 2, 0.5), role("orchestrator", 1, 0.95)}, "", "the orchestrator"},
		"a wait":          {1, []Role{role("loader", 2, 0.5)}, "source web is slow", "source web is slow"},
		"nothing known":   {1, []Role{role("loader", 2, 0.5)}, "", "waits between processes"},
	} {
		t.Run(name, func(t *testing.T) {
			f := Figures{CPUs: 8, Busy: c.busy, Roles: c.roles}
			if f.judge(c.waits); !strings.Contains(f.Limit, c.want) {
				t.Errorf("limit %q, want %q", f.Limit, c.want)
			}
		})
	}
}

func TestFill(t *testing.T) {
	f := Figures{Seconds: 10, Tokens: 5e6, Batches: 100, Roles: []Role{{Role: "loader", CPU: 20}}}
	var steps []time.Time
	for i := range 101 { // 99 gaps of 0.1 s and one of 1 s
		at := time.Duration(i) * 100 * time.Millisecond
		if i > 50 {
			at += 900 * time.Millisecond
		}
		steps = append(steps, time.Unix(0, 0).Add(at))
	}
	f.fill(steps)
	if f.TokensPerSecond != 5e5 || f.BatchesPerSecond != 10 || f.Roles[0].Cores != 2 || f.Roles[0].PerToken != 4 {
		t.Errorf("%+v", f)
	}
	if f.Step.Mean < 0.1089 || f.Step.Mean > 0.1091 || f.Step.P99 < 0.0999 || f.Step.P99 > 0.1001 {
		t.Errorf("steps of %v", f.Step)
	}
}
