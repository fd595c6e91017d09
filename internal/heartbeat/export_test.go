package heartbeat

import "time"

// Names that the external tests of this package use.
const Overdue = overdue

// Watch is watch.
func Watch(m *Monitor, j *Judge, d time.Duration) (Verdict, time.Duration) { return watch(m, j, d) }
