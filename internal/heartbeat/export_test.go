package heartbeat

import "time"

// Overdue exports overdue.
const Overdue = overdue

// Watch exports watch.
func Watch(m *Monitor, j *Judge, d time.Duration) (Verdict, time.Duration) { return watch(m, j, d) }
