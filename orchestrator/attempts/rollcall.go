package attempts

import (
	"time"

	"millrace/orchestrator/roster"
	pb "millrace/proto"
)

// rollCallLasts is how long ranks that no host knows are waited for. A trainer whose sidecar died comes back when it
// asks for its next batch. It may never ask, because it waits in a collective for the rank that joins.
const rollCallLasts = 10 * time.Second

// rollCall asks every host which of its ranks were there after a join.
type rollCall struct {
	number   uint64 // of the newest join that hosts were asked about, 0 for none
	at, now  time.Time
	answered map[roster.Session]uint64 // the newest call that each host has answered
}

func newRollCall() rollCall { return rollCall{answered: map[roster.Session]uint64{}} }

// begin starts a call. Answers to earlier calls do not count for it.
func (c *rollCall) begin(number uint64) {
	c.number, c.at = number, c.now
	clear(c.answered)
}

func (c *rollCall) answer(from roster.Session, number uint64) {
	c.answered[from] = max(c.answered[from], number)
}

// isOver reports whether every host has said which of its ranks were there after a join, and the ranks that no host
// listed have had the time to come back or to start again.
func (c *rollCall) isOver(number uint64, hosts *roster.Sidecars) bool {
	if c.number < number || c.now.Sub(c.at) < rollCallLasts {
		return false
	}
	sessions, all := hosts.Connected()
	for _, s := range sessions {
		all = all && c.answered[s] >= number
	}
	return all
}

func (c *rollCall) order() *pb.SidecarOrder {
	return &pb.SidecarOrder{Order: &pb.SidecarOrder_RollCall{RollCall: &pb.RollCall{Call: c.number}}}
}
