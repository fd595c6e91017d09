package main

import (
	"bufio"
	"context"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"millrace/app/exit"
	"millrace/app/report"
	"millrace/app/rundir"
	"millrace/app/supervisor"
	"millrace/internal/seam"
)

// watchEvery is the pause between two reports of --watch.
const watchEvery = time.Second

func statusCommand() *cobra.Command {
	var asJSON, watch bool
	var stream string
	c := &cobra.Command{
		Use:   "status DIR",
		Short: "Print the state of a run",
		Long: `Print the state of the run in a run directory: its processes, its step, the tokens drawn of each
source, quarantined records, what the run waits for, and the capabilities that are missing, such as a shadow or space
on a disk.

A process counts as a loader while it reads a stripe, and as a shadow while it stands by. While the orchestrator
restarts, status prints the processes alone. For a stopped run, it prints the facts in the
journal; "running" is then false.`,
		Example: "  millrace status runs/a\n  millrace status runs/a --json | jq .step\n  millrace status runs/a " +
			"--watch",
		Args: exactArgs(1, "one run directory"),
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := streamDir(args[0], stream)
			if err != nil {
				return err
			}
			if watch {
				return watchStatus(c, dir, asJSON)
			}
			_, err = oneStatus(c.Context(), c, dir, asJSON)
			return err
		},
	}
	streamFlag(c.Flags(), &stream)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.Flags().BoolVar(&watch, "watch", false, "print again every second, until interrupted or the run ends")
	return c
}

func watchStatus(c *cobra.Command, dir string, asJSON bool) error {
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	for {
		if running, err := oneStatus(ctx, c, dir, asJSON); err != nil || !running || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-seam.System{}.After(watchEvery):
		}
	}
}

// oneStatus prints the status once and reports whether the run goes on.
func oneStatus(ctx context.Context, c *cobra.Command, dir string, asJSON bool) (running bool, err error) {
	way := rundir.NewWay(dir)
	defer way.Close()
	view, running, err := readStatus(ctx, way, dir)
	if err != nil {
		return false, err
	}
	for _, name := range supervisor.Streams(dir) {
		of := report.NewStatus(nil, running)
		if reply, unanswered := way.AskStatus(ctx, supervisor.StreamDir(dir, name)); unanswered != nil {
			of.Unanswered(unanswered)
		} else {
			of.Answer(reply)
		}
		view.AddStream(name, of)
	}
	err = page(c, func(w *bufio.Writer) error {
		if asJSON {
			return report.Encode(w, view)
		}
		return view.Print(w)
	})
	if err == nil && !running {
		fmt.Fprintf(c.ErrOrStderr(), "no `millrace up` runs on %s\n", dir)
	}
	return running, err
}

// readStatus returns the status and whether the run goes on.
func readStatus(ctx context.Context, way *rundir.Way, dir string) (view *report.Status, running bool, err error) {
	roles, running, err := rundir.Roles(dir)
	if err != nil {
		return nil, false, exit.Failure(err)
	}
	view = report.NewStatus(roles, running)
	if running {
		addHosts(ctx, view, way)
	}
	if !running {
		err = storedStatus(view, dir)
	} else if reply, unanswered := way.AskStatus(ctx, dir); unanswered != nil {
		view.Unanswered(unanswered)
	} else {
		view.Answer(reply)
	}
	return view, running, err
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

// storedStatus adds the facts in the journal of a stopped run.
func storedStatus(view *report.Status, dir string) error {
	store, err := openJournal(dir)
	if err != nil {
		return err
	}
	defer store.Close()
	return view.Stored(store)
}
