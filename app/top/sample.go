// Package top shows a run in progress: samples of its status and processes, and pages made of them.
package top

import (
	"time"

	"millrace/app/report"
	"millrace/app/rundir"
)

// Sample is a run at one moment.
type Sample struct {
	At     time.Time
	Status *report.Status
	CPU    map[int]time.Duration // by process id: the CPU time used so far
	PSS    map[int]int64         // by process id: bytes; of an earlier moment in most samples
}

const (
	// over is the time over which rates are averaged.
	over = 5 * time.Second
	// pssEvery is the pause between two looks at the memory, for which the kernel walks all pages of a process.
	pssEvery = 5 * time.Second
)

// History has the samples of the last seconds, the newest last.
type History struct {
	samples []Sample
	pssAt   time.Time
}

// Add adds the status of a moment. It reads the CPU time and the memory of the processes.
func (h *History) Add(at time.Time, status *report.Status) {
	s := Sample{At: at, Status: status, CPU: map[int]time.Duration{}, PSS: map[int]int64{}}
	fresh := at.Sub(h.pssAt) >= pssEvery
	if fresh {
		h.pssAt = at
	}
	for _, r := range status.Roles {
		if used, err := rundir.CPU(r.Pid); err == nil {
			s.CPU[r.Pid] = used
		}
		if n := len(h.samples); !fresh && n > 0 {
			if bytes, ok := h.samples[n-1].PSS[r.Pid]; ok {
				s.PSS[r.Pid] = bytes
				continue
			}
		}
		if bytes, err := rundir.PSS(r.Pid); err == nil {
			s.PSS[r.Pid] = bytes
		}
	}
	h.samples = append(h.samples, s)
	for len(h.samples) > 2 && at.Sub(h.samples[1].At) >= over {
		h.samples = h.samples[1:]
	}
}

// Newest returns the newest sample. There must be one.
func (h *History) Newest() Sample { return h.samples[len(h.samples)-1] }

// rate returns the growth of a count a second. known is false if fewer than two samples have it.
func (h *History) rate(count func(Sample) (float64, bool)) (perSecond float64, known bool) {
	to := h.Newest()
	last, ok := count(to)
	if !ok {
		return 0, false
	}
	for _, from := range h.samples[:len(h.samples)-1] {
		if first, ok := count(from); ok {
			return (last - first) / to.At.Sub(from.At).Seconds(), true
		}
	}
	return 0, false
}
