package query

import (
	"context"
	"time"

	"millrace/app/exit"
	"millrace/app/report"
	"millrace/app/rundir"
	"millrace/app/supervisor"
	"millrace/internal/seam"
)

// Status returns the status of a run and whether it is in progress. The caller keeps the way for further questions and
// closes it.
func (r Run) Status(ctx context.Context, way *rundir.Way) (view *report.Status, running bool, err error) {
	roles, running, err := rundir.Roles(r.Dir)
	if err != nil {
		return nil, false, exit.Failure(err)
	}
	view = report.NewStatus(roles, running)
	if running {
		addHosts(ctx, view, way)
	}
	if !running {
		err = r.addStored(view)
	} else if reply, unanswered := way.AskStatus(ctx, r.Dir); unanswered != nil {
		view.Unanswered(unanswered)
	} else {
		view.Answer(reply)
	}
	return view, running, err
}

// StatusOfAll returns the status of a run with that of its further streams, and whether it is in progress.
func (r Run) StatusOfAll(ctx context.Context) (view *report.Status, running bool, err error) {
	way := rundir.NewWay(r.Dir)
	defer way.Close()
	view, running, err = r.Status(ctx, way)
	if err != nil {
		return nil, false, err
	}
	for _, name := range supervisor.Streams(r.Dir) {
		of := report.NewStatus(nil, running)
		if reply, unanswered := way.AskStatus(ctx, supervisor.StreamDir(r.Dir, name)); unanswered != nil {
			of.Unanswered(unanswered)
		} else {
			of.Answer(reply)
		}
		view.AddStream(name, of)
	}
	return view, running, nil
}

// watchEvery is the pause between two statuses of Watch.
const watchEvery = time.Second

// Watch passes the status of a run with its streams to each, once a second, until the run or ctx ends.
func (r Run) Watch(ctx context.Context, each func(*report.Status) error) error {
	for {
		view, running, err := r.StatusOfAll(ctx)
		if err == nil {
			err = each(view)
		}
		if err != nil || !running || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-seam.System{}.After(watchEvery):
		}
	}
}

// Table returns the status as a row for each source, with the time, so that the tables of several calls make a history.
// stream is the name of the run's stream in the rows.
func (r Run) Table(ctx context.Context, stream string) ([]report.StatusRow, error) {
	view, _, err := r.StatusOfAll(ctx)
	if err != nil {
		return nil, err
	}
	return view.Rows(stream, seam.System{}.Now()), nil
}

// addHosts adds the hosts of a run with several ones. If etcd does not answer, the status has an alert instead.
func addHosts(ctx context.Context, view *report.Status, way *rundir.Way) {
	site, err := way.Site()
	if site == nil && err == nil {
		return
	}
	var all []report.Host
	if err == nil {
		all, err = hostsOf(ctx, way, site.World)
	}
	if err != nil {
		view.Alerts = append(view.Alerts, report.Alert{Kind: "etcd", Text: err.Error()})
	}
	if site != nil {
		view.Spread(site.Name, all)
	}
}

// hostsOf returns all hosts of a run, also the ranks that no host serves.
func hostsOf(ctx context.Context, way *rundir.Way, world int) ([]report.Host, error) {
	there, leader, err := way.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	var out []report.Host
	shape := 0
	for _, h := range there {
		if h.Shape > shape {
			shape, world = h.Shape, h.World
		}
		out = append(out, report.Host{Name: h.Name, State: "running", Process: h.Label, First: h.First, Ranks: h.Ranks,
			Leads: h.Up == leader.Line})
	}
	return report.WithMissing(out, world), nil
}

// addStored adds the facts in the journal of a stopped run.
func (r Run) addStored(view *report.Status) error {
	store, err := r.open()
	if err != nil {
		return err
	}
	defer store.Close()
	return view.Stored(store)
}
