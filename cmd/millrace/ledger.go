package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"millrace"
	"millrace/app/exit"
	"millrace/app/report"
	"millrace/app/roles"
	"millrace/app/rundir"
	"millrace/internal/wire"
	"millrace/orchestrator"
	"millrace/proto"
)

// ledgerQuery is the flags of `millrace ledger`.
type ledgerQuery struct {
	stream              string
	dir, sample, source string
	step                uint64
	json                bool
}

func ledgerCommand() *cobra.Command {
	l := &ledgerQuery{}
	c := &cobra.Command{
		Use:   "ledger DIR --step N | --sample SOURCE/ID",
		Short: "Print the documents of a step, or the steps of a sample",
		Long: `Say which documents a step held, or in which steps a sample was, during a run or after it.

ledger prints a step once for every attempt that sealed it, with its digests and whether every rank has consumed it. ID
is the sample's id in batch.segments, such as part-0.jsonl#5. SOURCE may be given with --source instead.

The run drops the full plans of old steps, as checkpoint_saved allows. Their digests and ranges of ordinals stay. With
--json, "complete" is false for such a step; millrace plan computes its plan from the mixture file.`,
		Example: "  millrace ledger runs/a --step 41200\n  millrace ledger runs/a --sample web/part-0.jsonl#5 --json",
		Args:    exactArgs(1, "one run directory"),
		RunE: func(c *cobra.Command, args []string) error {
			l.dir = args[0]
			if c.Flags().Changed("step") == c.Flags().Changed("sample") {
				return exit.Usagef("millrace ledger: write either --step N or --sample SOURCE/ID")
			}
			return l.run(c)
		},
	}
	f := c.Flags()
	f.Uint64Var(&l.step, "step", 0, "the step to show")
	f.StringVar(&l.sample, "sample", "", "the sample to find, as SOURCE/ID")
	f.StringVar(&l.source, "source", "", "the sample's source, if --sample is its id alone")
	streamFlag(f, &l.stream)
	f.BoolVar(&l.json, "json", false, "print one JSON object a step and attempt")
	return c
}

// answers are a ledger's replies and the names of the sources by their numbers.
type answers struct {
	sources []string
	replies []*proto.LedgerReply
}

func (l *ledgerQuery) run(c *cobra.Command) (err error) {
	if l.dir, err = streamDir(l.dir, l.stream); err != nil {
		return err
	}
	_, running, err := rundir.Roles(l.dir)
	if err != nil {
		return exit.Failure(err)
	}
	var found *answers
	if running {
		found, err = l.live(c)
	} else {
		found, err = l.stored()
	}
	if err != nil {
		return err
	}
	if len(found.replies) == 0 {
		return exit.Failuref("%s", l.nothing())
	}
	return page(c, func(w *bufio.Writer) error {
		for _, r := range found.replies {
			line := report.NewLedgerStep(r, found.sources)
			if l.json {
				err = report.Encode(w, line)
			} else {
				err = line.Print(w)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (l *ledgerQuery) nothing() string {
	if l.sample == "" {
		return fmt.Sprintf("run directory %s: step %d was not sealed", l.dir, l.step)
	}
	return fmt.Sprintf(
		"run directory %s: no sealed step holds %s: it may come later, or a filter refused it, or it was quarantined; "+
			"the ledger keeps the newest quarantined samples only, and in block order it searches only steps with a "+
			"kept plan",
		l.dir,
		l.sample,
	)
}

// request returns the question with the sample's source split from its id. Sources are those of the run.
func (l *ledgerQuery) request(sources []string) (*proto.LedgerRequest, error) {
	if l.sample == "" {
		return &proto.LedgerRequest{ByStep: true, Step: l.step}, nil
	}
	source, id := l.source, l.sample
	if source == "" {
		for _, name := range sources { // a name may hold a slash; the longest name counts
			if rest, ok := strings.CutPrefix(l.sample, name+"/"); ok && len(name) > len(source) {
				source, id = name, rest
			}
		}
	}
	for _, name := range sources {
		if name == source {
			return &proto.LedgerRequest{Source: source, Id: id}, nil
		}
	}
	return nil, exit.Usagef(
		"millrace ledger: %s names no source of this run: write SOURCE/ID, such as %s/part-0.jsonl#5; its sources "+
			"are %s",
		l.sample,
		sources[0],
		strings.Join(sources, ", "),
	)
}

// live asks the orchestrator of a running run.
func (l *ledgerQuery) live(c *cobra.Command) (*answers, error) {
	now, err := rundir.AskStatus(c.Context(), l.dir)
	if err != nil {
		return nil, exit.Failuref("the orchestrator of %s does not answer: %v", l.dir, err)
	}
	out := &answers{sources: report.Names(now.Sources)}
	request, err := l.request(out.sources)
	if err != nil {
		return nil, err
	}
	err = rundir.Ask(l.dir, func(client proto.OrchestratorClient) error {
		stream, err := client.Ledger(c.Context(), request)
		if err != nil {
			return err
		}
		for {
			reply, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return wire.FromStatus(err)
			}
			out.replies = append(out.replies, reply)
		}
	})
	if err != nil {
		return nil, exit.Failuref("ask the ledger of %s: %v", l.dir, err)
	}
	return out, nil
}

// stored asks the ledger of a stopped run.
func (l *ledgerQuery) stored() (*answers, error) {
	store, err := openJournal(l.dir)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	kept, err := orchestrator.OpenLedger(store, millrace.Train, roles.Inverse)
	if err != nil {
		return nil, exit.Failure(err)
	}
	out := &answers{sources: kept.Sources()}
	request, err := l.request(out.sources)
	if err != nil {
		return nil, err
	}
	if out.replies, err = kept.Answer(request); err != nil {
		return nil, exit.Failure(err)
	}
	return out, nil
}
