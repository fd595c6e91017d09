package sidecar

import "millrace"

// RankStatus is what a sidecar knows of one of its ranks.
type RankStatus struct {
	Rank    millrace.Rank
	Pid     int           // of its trainer; 0 where nobody is connected
	Pushed  millrace.Slot // the newest batch pushed
	Frames  int           // of the newest ring
	Busy    int           // frames being built or with the trainer
	Bytes   int64         // of shared memory
	Waiting string        // what the rank's next batch waits for
}

// Status returns one entry a rank.
func (s *Server) Status() []RankStatus {
	out := make([]RankStatus, 0, len(s.seats))
	for _, at := range s.seats {
		at.mu.Lock()
		h := at.holder
		at.mu.Unlock()
		r := RankStatus{Rank: at.rank}
		if h != nil {
			r.Pid, r.Waiting = int(h.peer.pid), h.waiting()
			r.Frames, r.Busy, r.Bytes = h.pool.Usage()
			if p := h.pushed.Load(); p != nil {
				r.Pushed = *p
			}
		}
		out = append(out, r)
	}
	return out
}
