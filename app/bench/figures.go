package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"millrace/app/report"
)

// Figures are the answer of `millrace bench`. Scripts read the JSON names.
type Figures struct {
	Mixture  string  `json:"mixture"`
	Ranks    int     `json:"ranks"`
	Mock     bool    `json:"mock"`    // the batches were those of one step, again and again
	Start    float64 `json:"start"`   // seconds until every rank had its first batch
	Seconds  float64 `json:"seconds"` // that were measured, after a warm-up
	Steps    uint64  `json:"steps"`
	Batches  uint64  `json:"batches"` // of all ranks
	Tokens   uint64  `json:"tokens"`
	Ended    bool    `json:"ended"` // the run ended before the time was over
	PerToken float64 `json:"cpu_per_million_tokens"`
	// Seconds between the ends of two steps while trainers only take batches.
	Step struct {
		Mean float64 `json:"mean"`
		P99  float64 `json:"p99"`
	} `json:"step_seconds"`
	TokensPerSecond  float64 `json:"tokens_per_second"`
	BatchesPerSecond float64 `json:"batches_per_second"`
	Roles            []Role  `json:"roles"`
	CPUs             int     `json:"cpus"`
	Busy             float64 `json:"busy_cpus"` // of this host, with all its processes
	Limit            string  `json:"limit"`     // the reason why there are not more batches
	// Of all processes of a role, by role and kind.
	Activities []Activity `json:"activities"`
}

// Activity is the time that the processes of a role spent on one kind of work, such as read, decode or tokenise, with
// its waits.
type Activity struct {
	Role     string  `json:"role"`
	Kind     string  `json:"kind"`
	Seconds  float64 `json:"seconds"`
	PerToken float64 `json:"seconds_per_million_tokens"`
}

// Role is the CPU of the processes of one role.
type Role struct {
	Role      string  `json:"role"`
	Processes int     `json:"processes"`
	CPU       float64 `json:"cpu_seconds"`
	Cores     float64 `json:"cores"` // CPU seconds a second
	PerToken  float64 `json:"cpu_per_million_tokens"`
}

// fill computes the rates from the counts.
func (f *Figures) fill(steps []time.Time) {
	f.TokensPerSecond = float64(f.Tokens) / f.Seconds
	f.BatchesPerSecond = float64(f.Batches) / f.Seconds
	var gaps []float64
	for i := 1; i < len(steps); i++ {
		gaps = append(gaps, steps[i].Sub(steps[i-1]).Seconds())
	}
	if len(gaps) > 0 {
		slices.Sort(gaps)
		f.Step.Mean = steps[len(steps)-1].Sub(steps[0]).Seconds() / float64(len(gaps))
		f.Step.P99 = gaps[int(math.Ceil(0.99*float64(len(gaps))))-1]
	}
	for i := range f.Activities {
		if a := &f.Activities[i]; f.Tokens > 0 {
			a.PerToken = a.Seconds / float64(f.Tokens) * 1e6
		}
	}
	for i := range f.Roles {
		r := &f.Roles[i]
		r.Cores = r.CPU / f.Seconds
		if f.Tokens > 0 {
			r.PerToken = r.CPU / float64(f.Tokens) * 1e6
			f.PerToken += r.PerToken
		}
	}
}

// nearlyAll is the part of a core, or of all cores, above which it counts as fully used.
const nearlyAll = 0.9

// judge names the limit of the run by the CPU of its roles. waits is the orchestrator's reason of a wait, often empty.
func (f *Figures) judge(waits string) {
	busiest := Role{}
	total := 0.0
	for _, r := range f.Roles {
		total += r.Cores
		if r.Cores > busiest.Cores {
			busiest = r
		}
	}
	switch {
	case f.Busy >= nearlyAll*float64(f.CPUs) && total < f.Busy/2:
		f.Limit = fmt.Sprintf("other processes of this host: %.1f of %d CPUs are busy, and the run uses %.1f of them",
			f.Busy, f.CPUs, total)
	case f.Busy >= nearlyAll*float64(f.CPUs):
		f.Limit = fmt.Sprintf("the CPUs of this host: %.1f of %d are busy, the %s uses %.1f of them", f.Busy, f.CPUs,
			busiest.Role, busiest.Cores)
	case busiest.Processes > 0 && busiest.Cores >= nearlyAll*float64(busiest.Processes):
		f.Limit = fmt.Sprintf("the %s: it uses %.1f CPUs in %d processes, while this host has free CPUs: "+
			"see limits: in the mixture file", busiest.Role, busiest.Cores, busiest.Processes)
	case waits != "":
		f.Limit = "a wait, not the CPU: " + waits
	default:
		f.Limit = fmt.Sprintf("waits between processes, or the disk: %.1f of %d CPUs are busy", f.Busy, f.CPUs)
	}
}

// Print writes the figures for people.
func (f *Figures) Print(w io.Writer) error {
	what := "this host delivers"
	if f.Mock {
		what = "the trainers took (mock batches)"
	}
	if f.Tokens > 0 {
		what += " " + report.Count(uint64(f.TokensPerSecond)) + " tokens/s,"
	}
	fmt.Fprintf(w, "%s %.1f batches/s to %d ranks (%d steps in %.1f s)\n", what, f.BatchesPerSecond, f.Ranks, f.Steps,
		f.Seconds)
	if f.Step.Mean > 0 && !f.Mock {
		fmt.Fprintf(w, "a trainer whose steps take %.3g s or longer does not wait (one step in a hundred came after "+
			"%.3g s; batches that are ready ahead bridge it)\n", f.Step.Mean, f.Step.P99)
	}
	if !f.Mock {
		fmt.Fprintf(w, "the first batches came after %.1f s\n", f.Start)
	}
	if f.Ended {
		fmt.Fprintln(w, "the run ended before the time was over (see stop: in the mixture file); "+
			"short runs are measured with their start")
	}
	if f.Limit != "" {
		fmt.Fprintf(w, "limited by %s\n", f.Limit)
	}
	rows := []string{report.Row("\nROLE", "PROCESSES", "CPUS", "CPU s / M TOKENS")}
	for _, r := range f.Roles {
		rows = append(rows, report.Row(r.Role, r.Processes, fmt.Sprintf("%.2f", r.Cores),
			fmt.Sprintf("%.3f", r.PerToken)))
	}
	if len(f.Roles) == 0 {
		return nil
	}
	rows = append(rows, report.Row("all", "", "", fmt.Sprintf("%.3f", f.PerToken)))
	if err := report.Table(w, rows...); err != nil || len(f.Activities) == 0 {
		return err
	}
	rows = []string{report.Row("\nROLE", "ACTIVITY", "SECONDS", "s / M TOKENS")}
	for _, a := range f.Activities {
		rows = append(rows, report.Row(a.Role, a.Kind, fmt.Sprintf("%.2f", a.Seconds), fmt.Sprintf("%.3f", a.PerToken)))
	}
	return report.Table(w, rows...)
}
