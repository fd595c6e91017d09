package link

import (
	"context"
	"log/slog"

	"millrace/proto"
	"millrace/sidecar"
)

// alerts holds the run's open alerts as the orchestrator last listed them.
type alerts struct {
	log *slog.Logger

	condition
	open    []sidecar.Alert
	version uint64 // counts the lists
}

// replace stores a new list and logs each alert that begins or ends.
func (a *alerts) replace(list []*proto.Alert) {
	now := make([]sidecar.Alert, 0, len(list))
	for _, x := range list {
		now = append(now, sidecar.Alert{Kind: x.Kind, Text: x.Text, Since: x.Since})
	}
	a.update(func() {
		for _, x := range now {
			if !sidecar.Holds(a.open, x) {
				a.log.Warn("alert", "kind", x.Kind, "text", x.Text)
			}
		}
		for _, x := range a.open {
			if !sidecar.Holds(now, x) {
				a.log.Warn("alert is over", "kind", x.Kind, "text", x.Text)
			}
		}
		a.open = now
		a.version++
	})
}

// newerThan blocks until the version of the list is above after, and returns the list and its version.
func (a *alerts) newerThan(ctx context.Context, after uint64) (open []sidecar.Alert, version uint64, err error) {
	err = a.until(ctx, func() bool {
		open, version = a.open, a.version
		return version > after
	})
	return open, version, err
}
