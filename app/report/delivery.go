package report

import (
	"fmt"
	"io"

	"millrace/internal/wire"
	"millrace/proto"
)

// Delivery says how well trainers are fed: how long they wait, and for which activity. Numbers that are 0 are left out
// of its JSON.
type Delivery proto.Delivery

func (d *Delivery) print(w io.Writer) {
	if len(d.Ranks) == 0 {
		return
	}
	fmt.Fprintf(w, "trainers wait for data %s of the time; slowest activity: %s\n", Percent(d.Waited),
		wire.ActivityInWords(d.Slowest))
	for _, k := range d.Ranks {
		if k.Waiting != nil && k.WaitingFor >= 1 {
			fmt.Fprintf(w, "rank %d waits for %.1f s: %s\n", k.Rank, k.WaitingFor, k.Waiting.Text)
		}
	}
}
