package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"millrace"
	"millrace/app/exit"
	"millrace/app/report"
	"millrace/app/roles"
	"millrace/app/rundir"
	"millrace/internal/wire"
	"millrace/orchestrator"
	"millrace/proto"
)

// Sample is the address of a sample in the ledger of a run.
type Sample struct {
	Name   string // SOURCE/ID, or the id alone if Source has its source
	Source string
}

// Ledger returns a step, or the steps that hold a sample, once for each attempt that sealed it. It returns an error if
// there is none. step counts if sample is nil.
func (r Run) Ledger(ctx context.Context, step uint64, sample *Sample) ([]*report.LedgerStep, error) {
	running, err := r.isRunning()
	if err != nil {
		return nil, err
	}
	l := &question{run: r, step: step, sample: sample}
	ask := l.stored
	if running {
		ask = func() (*answers, error) { return l.live(ctx) }
	}
	found, err := ask()
	if err != nil {
		return nil, err
	}
	if len(found.replies) == 0 {
		return nil, exit.Failuref("%s", l.nothing())
	}
	out := make([]*report.LedgerStep, len(found.replies))
	for i, r := range found.replies {
		out[i] = report.NewLedgerStep(r, found.sources)
	}
	return out, nil
}

// question is a question to a ledger.
type question struct {
	run    Run
	step   uint64
	sample *Sample // nil: the step counts
}

// answers are a ledger's replies and the names of the sources by their numbers.
type answers struct {
	sources []string
	replies []*proto.LedgerReply
}

func (l *question) nothing() string {
	if l.sample == nil {
		return fmt.Sprintf("run directory %s: step %d was not sealed", l.run.Dir, l.step)
	}
	return fmt.Sprintf(
		"run directory %s: no sealed step holds %s: it may come later, or a filter refused it, or it was quarantined; "+
			"the ledger keeps the newest quarantined samples only, and in block order it searches only steps with a "+
			"kept plan",
		l.run.Dir,
		l.sample.Name,
	)
}

// request returns the question with the sample's source split from its id. Sources are those of the run.
func (l *question) request(sources []string) (*proto.LedgerRequest, error) {
	if l.sample == nil {
		return &proto.LedgerRequest{ByStep: true, Step: l.step}, nil
	}
	source, id := l.sample.Source, l.sample.Name
	if source == "" {
		for _, name := range sources { // a name may hold a slash; the longest name counts
			if rest, ok := strings.CutPrefix(l.sample.Name, name+"/"); ok && len(name) > len(source) {
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
		l.sample.Name,
		sources[0],
		strings.Join(sources, ", "),
	)
}

// live asks the orchestrator of a running run.
func (l *question) live(ctx context.Context) (*answers, error) {
	now, err := rundir.AskStatus(ctx, l.run.Dir)
	if err != nil {
		return nil, exit.Failuref("the orchestrator of %s does not answer: %v", l.run.Dir, err)
	}
	out := &answers{sources: report.Names(now.Sources)}
	request, err := l.request(out.sources)
	if err != nil {
		return nil, err
	}
	err = rundir.Ask(l.run.Dir, func(client proto.OrchestratorClient) error {
		stream, err := client.Ledger(ctx, request)
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
		return nil, exit.Failuref("ask the ledger of %s: %v", l.run.Dir, err)
	}
	return out, nil
}

// stored asks the ledger of a stopped run.
func (l *question) stored() (*answers, error) {
	store, err := l.run.open()
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
