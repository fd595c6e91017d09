package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"millrace"
	"millrace/internal/app/supervisor"
	"millrace/internal/seam"
	"millrace/orchestrator/facts"
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
	Alerts      []alertView           `json:"alerts"`  // what the run lacks now
	Stripes     []stripeView          `json:"stripes"` // who reads what, and who stands by
	Mixture     *mixtureView          `json:"mixture"` // null where nobody can say
	Masked      uint64                `json:"masked"`  // segments that turned out bad after they were sealed
}

// alertView is something that the run lacks; since is a time of RFC 3339, empty where nobody noted it.
type alertView struct {
	Kind  string `json:"kind"`
	Text  string `json:"text"`
	Since string `json:"since"`
}

// stripeView is a part of a source: its loader, and the shadow that can take over at once, empty where there is none.
type stripeView struct {
	Source     string        `json:"source"`
	Stripe     uint32        `json:"stripe"`
	Loader     string        `json:"loader"`
	Term       millrace.Term `json:"term"`
	Shadow     string        `json:"shadow"`
	ShadowTerm millrace.Term `json:"shadow_term"`
}

type sourceView struct {
	Tokens  uint64  `json:"tokens"`
	Samples uint64  `json:"samples"`
	Epoch   uint32  `json:"epoch"`
	Share   float64 `json:"share"`       // of all tokens
	Passed  uint64  `json:"passed_over"` // documents that count nothing: refused by filters, without tokens, or rejected
	Shuffle string  `json:"shuffle"`     // the order that the files allow; empty while they are not known
	Why     string  `json:"why"`         // why it is not the order that the mixture file asks for; empty if it is
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
		Long: `Say what the run in a run directory is doing: its processes, how far it is, what was drawn of each source, what was quarantined,
what it waits for and what it lacks: a shadow for a loader, room on a disk, a source that cannot be reached. A process is a loader while
it reads something for the run, and a shadow while it only stands by, whatever it was started as. While the orchestrator is being started
again, its processes are shown alone. Of a run that is stopped the facts in its journal are shown; with --json, "running" is false then.`,
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
	view := statusView{Sources: map[string]sourceView{}, Roles: []supervisor.Role{}, Quarantined: quarantineView{Recent: []millrace.Quarantine{}},
		Alerts: []alertView{}, Stripes: []stripeView{}}
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
		view.lacking()
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
func askStatus(ctx context.Context, dir string) (reply *proto.StatusReply, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	err = askOrchestrator(dir, func(client proto.OrchestratorClient) error {
		reply, err = client.Status(ctx, &proto.StatusRequest{}, grpc.WaitForReady(false))
		return err
	})
	return reply, err
}

// askOrchestrator lets ask talk to the orchestrator of a run directory; its error is what a person reads.
func askOrchestrator(dir string, ask func(proto.OrchestratorClient) error) error {
	address := socket(dir, "orchestrator")
	conn, err := grpc.NewClient("passthrough:///orchestrator", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return seam.UnixNet{}.Dial(ctx, address) }))
	if err != nil {
		return err
	}
	defer conn.Close()
	err = ask(proto.NewOrchestratorClient(conn))
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.Unavailable: // nobody listens, or nobody does any more
		return errors.New("it is being started, or the run is just ending: ask again in a moment")
	case codes.DeadlineExceeded:
		return fmt.Errorf("it said nothing for %v: ask again in a moment", answerWithin)
	}
	return errors.New(status.Convert(err).Message())
}

func (v *statusView) answer(r *proto.StatusReply) {
	v.Step, v.Planned, v.Attempt, v.Ended, v.Waiting = &r.Step, &r.Planned, r.GetFence().GetAttempt(), r.Ended, r.Waiting
	for name, s := range r.Sources {
		v.Sources[name] = sourceView{Tokens: s.Tokens, Samples: s.Samples, Epoch: s.Epoch, Share: s.Share, Passed: s.PassedOver,
			Shuffle: s.Shuffle, Why: s.Why}
	}
	v.quarantined(r.Quarantined, r.Recent)
	v.Masked = r.Masked
	v.Mixture = newMixtureView(r.Mixture)
	for _, a := range r.Alerts {
		v.Alerts = append(v.Alerts, newAlertView(a))
	}
	for _, p := range r.Stripes {
		v.Stripes = append(v.Stripes, stripeView{Source: p.Source, Stripe: p.Stripe, Loader: p.Name, Term: millrace.Term(p.Term),
			Shadow: p.GetStandby().GetName(), ShadowTerm: millrace.Term(p.GetStandby().GetTerm())})
	}
	acting(v.Roles, r)
}

// acting corrects what the supervisor knows, who lives, by what the orchestrator knows: what a loader is by now, and under which term.
func acting(roles []supervisor.Role, r *proto.StatusReply) {
	for _, known := range r.Roles {
		for i := range roles {
			if role := &roles[i]; role.Name == known.Name && int64(role.Pid) == known.Pid {
				role.Role, role.Term = known.Role, max(role.Term, millrace.Term(known.Term))
			}
		}
	}
}

func newAlertView(a *proto.Alert) alertView {
	out := alertView{Kind: a.Kind, Text: a.Text}
	if a.Since != 0 {
		out.Since = time.UnixMilli(a.Since).UTC().Format(time.RFC3339)
	}
	return out
}

// lacking adds what a role lacks that cannot say so itself, since it does not live without.
func (v *statusView) lacking() {
	for _, r := range v.Roles {
		if r.Lacks != "" {
			v.Alerts = append(v.Alerts, alertView{Kind: "role", Text: r.Name + " cannot go on for now: " + r.Lacks})
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
	s, st, err := facts.ReadCounters(store, millrace.Train)
	if err != nil {
		return &failure{err.Error()}
	}
	v.Mixture = &mixtureView{Changes: storedChanges(s)}
	v.Step, v.Planned, v.Attempt, v.Ended = &s.Watermark, &s.Next, s.Attempt.GetAttempt(), s.Ended != nil
	total := uint64(0)
	for _, n := range s.Quarantined {
		total += n
	}
	v.quarantined(total, s.RecentQuarantines())
	if v.Waiting = "the run is stopped"; v.Ended && s.Watermark >= s.Ended.GetSteps() {
		v.Waiting = "the run is complete: " + s.Ended.GetReason()
	}
	for i, name := range sortedNames(s.Manifests) {
		if i < len(st.Sources) {
			src := &st.Sources[i]
			v.Sources[name] = sourceView{Tokens: src.Tokens, Samples: src.Samples, Epoch: uint32(src.Epoch),
				Share: float64(src.Tokens) / float64(max(st.Tokens, 1)), Passed: src.PassedOver(), Shuffle: s.Manifests[name].GetShuffle(), Why: s.Manifests[name].GetWhy()}
		}
	}
	return nil
}
