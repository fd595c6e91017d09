package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"millrace"
	"millrace/internal/seam"
	"millrace/internal/supervisor"
	"millrace/orchestrator"
	"millrace/proto"
)

// statusView is what `millrace status --json` prints; the names are what scripts read.
type statusView struct {
	Running     bool                  `json:"running"`
	Roles       []supervisor.Role     `json:"roles"`
	Step        *uint64               `json:"step"` // first step that not every rank has consumed; null where nobody can say
	Planned     *uint64               `json:"planned"`
	Attempt     uint32                `json:"attempt"`
	Ended       bool                  `json:"ended"`
	Sources     map[string]sourceView `json:"sources"`
	Quarantined quarantineView        `json:"quarantined"`
	Waiting     string                `json:"waiting"`
}

type sourceView struct {
	Tokens  uint64  `json:"tokens"`
	Samples uint64  `json:"samples"`
	Epoch   uint32  `json:"epoch"`
	Share   float64 `json:"share"` // of all tokens
}

type quarantineView struct {
	Count  uint64                `json:"count"`
	Recent []millrace.Quarantine `json:"recent"`
}

const (
	answerWithin = 2 * time.Second
	watchEvery   = time.Second
)

func statusCommand() *cobra.Command {
	var asJSON, watch bool
	c := &cobra.Command{
		Use:   "status DIR",
		Short: "Say what a run is doing",
		Long: `Say what the run in a run directory is doing: its processes, how far it is, what was drawn of each source, what was quarantined
and what it waits for. While the orchestrator is being started again, its processes are shown alone. Of a run that is stopped the
facts in its journal are shown; with --json, "running" is false then.`,
		Example: "  millrace status runs/a\n  millrace status runs/a --json | jq .step\n  millrace status runs/a --watch",
		Args:    exactArgs(1, "one run directory"),
		RunE: func(c *cobra.Command, args []string) error {
			if watch {
				return watchStatus(c, args[0], asJSON)
			}
			_, err := oneStatus(c.Context(), c, args[0], asJSON)
			return err
		},
	}
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

// oneStatus prints the status once and tells whether the run goes on.
func oneStatus(ctx context.Context, c *cobra.Command, dir string, asJSON bool) (running bool, err error) {
	view := statusView{Sources: map[string]sourceView{}, Roles: []supervisor.Role{}, Quarantined: quarantineView{Recent: []millrace.Quarantine{}}}
	roles, running, err := runs(dir)
	if err != nil {
		return false, &failure{err.Error()}
	}
	if running {
		view.Running, view.Roles = true, roles
		if reply, err := askStatus(ctx, dir); err != nil {
			view.Waiting = fmt.Sprintf("the orchestrator does not answer: %v", err)
		} else {
			view.answer(reply)
		}
	} else if err := view.stored(dir); err != nil {
		return false, err
	}
	err = page(c, func(w *bufio.Writer) error {
		if asJSON {
			return encode(w, &view)
		}
		return view.print(w)
	})
	if err == nil && !running {
		fmt.Fprintf(c.ErrOrStderr(), "no `millrace up` runs on %s\n", dir)
	}
	return running, err
}

// askStatus asks the orchestrator of a run directory.
func askStatus(ctx context.Context, dir string) (*proto.StatusReply, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	address := socket(dir, "orchestrator")
	conn, err := grpc.NewClient("passthrough:///orchestrator", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return seam.UnixNet{}.Dial(ctx, address) }))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	reply, err := proto.NewOrchestratorClient(conn).Status(ctx, &proto.StatusRequest{}, grpc.WaitForReady(false))
	if err != nil {
		return nil, errors.New(status.Convert(err).Message())
	}
	return reply, nil
}

func (v *statusView) answer(r *proto.StatusReply) {
	v.Step, v.Planned, v.Attempt, v.Ended, v.Waiting = &r.Step, &r.Planned, r.GetFence().GetAttempt(), r.Ended, r.Waiting
	for name, s := range r.Sources {
		v.Sources[name] = sourceView{Tokens: s.Tokens, Samples: s.Samples, Epoch: s.Epoch, Share: s.Share}
	}
	v.quarantined(r.Quarantined, r.Recent)
	// The supervisor knows who lives, the orchestrator under which term a loader was assigned its sources.
	for _, known := range r.Roles {
		for i := range v.Roles {
			if role := &v.Roles[i]; role.Name == known.Name && int64(role.Pid) == known.Pid {
				role.Term = max(role.Term, millrace.Term(known.Term))
			}
		}
	}
}

func (v *statusView) quarantined(n uint64, recent []*proto.Quarantine) {
	v.Quarantined.Count = n
	for _, q := range recent {
		v.Quarantined.Recent = append(v.Quarantined.Recent, millrace.Quarantine{Source: q.Source, ID: q.Id, Offset: q.Offset, Reason: q.Reason})
	}
}

// stored fills in what the journal of a stopped run says.
func (v *statusView) stored(dir string) error {
	store, err := openJournal(dir)
	if err != nil {
		return err
	}
	defer store.Close()
	s, _, err := orchestrator.ReadState(store, millrace.Train)
	if err != nil {
		return &failure{err.Error()}
	}
	v.Step, v.Planned, v.Attempt, v.Ended = &s.Watermark, &s.Next, s.Attempt.GetAttempt(), s.Ended != nil
	total := uint64(0)
	for _, n := range s.Quarantined {
		total += n
	}
	v.quarantined(total, s.Recent)
	if v.Waiting = "the run is stopped"; v.Ended && s.Watermark >= s.Ended.GetSteps() {
		v.Waiting = "the run is complete: " + s.Ended.GetReason()
	}
	st, err := s.Planner()
	if err != nil {
		return &failure{err.Error()}
	}
	for i, name := range sortedNames(s.Manifests) {
		if i < len(st.Sources) {
			src := &st.Sources[i]
			v.Sources[name] = sourceView{Tokens: src.Tokens, Samples: src.Samples, Epoch: uint32(src.Epoch), Share: float64(src.Tokens) / float64(max(st.Tokens, 1))}
		}
	}
	return nil
}

func (v *statusView) print(w io.Writer) error {
	if v.Step != nil {
		fmt.Fprintf(w, "step %d, planned up to %d, attempt %d\n", *v.Step, *v.Planned, v.Attempt)
	}
	if v.Waiting != "" {
		fmt.Fprintf(w, "waiting: %s\n", v.Waiting)
	}
	rows := []string{row("\nROLE", "NAME", "PID", "STATE", "TERM", "RESTARTS")}
	for _, r := range v.Roles {
		rows = append(rows, row(r.Role, r.Name, r.Pid, r.State, r.Term, r.Restarts))
	}
	if len(v.Roles) > 0 {
		if err := table(w, rows...); err != nil {
			return err
		}
	}
	rows = []string{row("\nSOURCE", "TOKENS", "SAMPLES", "EPOCH", "SHARE")}
	for _, name := range sortedNames(v.Sources) {
		s := v.Sources[name]
		rows = append(rows, row(name, count(s.Tokens), count(s.Samples), s.Epoch, percent(s.Share)))
	}
	if len(v.Sources) > 0 {
		if err := table(w, rows...); err != nil {
			return err
		}
	}
	if v.Quarantined.Count > 0 {
		fmt.Fprintf(w, "\nquarantined: %d\n", v.Quarantined.Count)
	}
	for _, q := range v.Quarantined.Recent {
		fmt.Fprintf(w, "  %s %s at byte %d: %s\n", q.Source, q.ID, q.Offset, q.Reason)
	}
	return nil
}
