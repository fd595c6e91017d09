package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"millrace"
	"millrace/app/config"
	"millrace/app/exit"
	"millrace/app/report"
	"millrace/app/rundir"
	"millrace/internal/wire"
	"millrace/proto"
)

// mix is the flags of `millrace mix`.
type mix struct {
	dir, stream      string
	from, to, over   uint64
	linear           uint64
	quadratic        uint64
	ramp             string
	later, json, fit bool
	given            func(flag string) bool
}

func mixCommand() *cobra.Command {
	m := &mix{}
	c := &cobra.Command{
		Use:   "mix DIR show|set|schedule|skip|add-source|remove-source|costs",
		Short: "Change the mixture of a run while it goes on, or show it",
		Long: `Change the mixture of the run in DIR while it goes on.

A change takes effect on every rank at the same step: at --from-step, or at the next step that is not planned. It is
journaled first, so the run gives the same batches after every restart. Trainers' states carry it. It stays in force
when the ranks start again from an earlier state, unless load_state_dict gets override=["mixture.changes"].
With --next-attempt, a change may name a step that is planned. It holds once the ranks start again at or
before that step.

  show                    the weights in force, the schedule from here on, and every change
  set NAME=WEIGHT...      a weight for each source, in place of the schedule from there on
                          (--ramp linear|cosine --over-steps N)
  schedule FILE           a schedule, as under mixture.schedule, in place of the old one from its first entry on
  skip                    pass over the data of steps A to B, B excluded (--from-step A --to-step B)
  add-source NAME=WEIGHT  give a weight to a source that has 0; the others together weigh 1
  remove-source NAME      give a source weight 0 from there on; the rest of a document that it has begun is left out
  costs                   predict costs with --linear A --quadratic B, or with --refit by the reported times`,
		Example: "  millrace mix runs/a set web=0.5 code=0.3 books=0.2 --ramp linear --over-steps 500\n" +
			"  millrace mix runs/a skip --from-step 41200 --to-step 41260 --next-attempt\n  millrace mix runs/a " +
			"show --json",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return exactArgs(2, "one run directory and a verb")(c, args)
			}
			dir, err := streamDir(args[0], m.stream)
			if err != nil {
				return err
			}
			m.dir, m.given = dir, c.Flags().Changed
			return m.run(c, args[1], args[2:])
		},
	}
	f := c.Flags()
	f.Uint64Var(&m.from, "from-step", 0, "the first step to change (default: the next one that is not planned)")
	f.Uint64Var(&m.to, "to-step", 0, "of skip: the first step whose data is not passed over")
	f.StringVar(&m.ramp, "ramp", "none", "of set: none, linear or cosine")
	f.Uint64Var(&m.over, "over-steps", 0, "of set: the length of the ramp in steps")
	f.BoolVar(&m.later, "next-attempt", false, "take effect when the ranks start again at or before --from-step")
	f.Uint64Var(&m.linear, "linear", 0, "of costs: the cost of a token")
	f.Uint64Var(&m.quadratic, "quadratic", 0, "of costs: the cost of a pair of tokens of one document")
	f.BoolVar(&m.fit, "refit", false, "of costs: fit them to the times that trainers reported")
	streamFlag(f, &m.stream)
	f.BoolVar(&m.json, "json", false, "print one JSON object")
	return c
}

func (m *mix) run(c *cobra.Command, verb string, args []string) error {
	request := &proto.MixRequest{HasFrom: m.given("from-step"), From: m.from, Later: m.later}
	var err error
	switch verb {
	case "show":
		request = nil
		err = m.count(args, 0, "show takes no more arguments")
	case "set":
		err = m.set(request, args)
	case "schedule":
		err = m.schedule(request, args)
	case "skip":
		request.Change = &proto.MixRequest_Skip{Skip: &proto.Skipped{To: m.to}}
		if err = m.count(args, 0, "skip takes no more arguments"); err == nil &&
			(!m.given("from-step") || !m.given("to-step")) {
			err = errors.New("skip needs --from-step and --to-step")
		}
	case "add-source":
		err = m.add(request, args)
	case "remove-source":
		if err = m.count(args, 1, "remove-source needs the name of one source"); err == nil {
			request.Change = &proto.MixRequest_Remove{Remove: args[0]}
		}
	case "costs":
		err = m.costs(request, args)
	default:
		err = fmt.Errorf(
			"unknown verb %q: it is one of show, set, schedule, skip, add-source, remove-source, costs", verb,
		)
	}
	if err != nil {
		return exit.Usagef("millrace mix: %w", err)
	}
	if _, running, err := rundir.Roles(m.dir); err != nil {
		return exit.Failure(err)
	} else if !running {
		return exit.Failuref("no `millrace up` runs on %s: only the mixture of a running run can be changed; "+
			"`millrace status %s` lists earlier changes", m.dir, m.dir)
	}
	if request == nil {
		return m.show(c)
	}
	return m.ask(c, request)
}

func (m *mix) count(args []string, n int, want string) error {
	if len(args) != n {
		return errors.New(want)
	}
	return nil
}

// weights reads NAME=WEIGHT arguments. A name may contain an equals sign.
func weights(args []string) ([]*proto.SourceWeight, error) {
	if len(args) == 0 {
		return nil, errors.New("write the weight of each source, such as web=0.5 code=0.5")
	}
	var out []*proto.SourceWeight
	for _, arg := range args {
		at := strings.LastIndexByte(arg, '=')
		if at <= 0 {
			return nil, fmt.Errorf("%q is no weight of a source: write NAME=WEIGHT, such as web=0.5", arg)
		}
		out = append(out, &proto.SourceWeight{Source: arg[:at], Weight: arg[at+1:]})
	}
	return out, nil
}

func (m *mix) set(r *proto.MixRequest, args []string) error {
	list, err := weights(args)
	if err != nil {
		return err
	}
	r.Change = &proto.MixRequest_Set{Set: &proto.SetWeights{Weights: list, Ramp: m.ramp, Over: m.over}}
	return nil
}

func (m *mix) add(r *proto.MixRequest, args []string) error {
	list, err := weights(args)
	if err != nil {
		return err
	}
	if err := m.count(args, 1, "add-source takes one source: write NAME=WEIGHT"); err != nil {
		return err
	}
	r.Change = &proto.MixRequest_Add{Add: &proto.AddSource{Source: list[0].Source, Weight: list[0].Weight}}
	return nil
}

func (m *mix) schedule(r *proto.MixRequest, args []string) error {
	if err := m.count(args, 1, "schedule needs one file"); err != nil {
		return err
	}
	milestones, err := config.LoadMilestones(args[0])
	if err != nil {
		return err
	}
	ask := &proto.SetSchedule{}
	for i := range milestones {
		k := &milestones[i]
		from, tokens := k.From()
		if k.Weights.Derived != nil || len(k.Groups) > 0 {
			return fmt.Errorf(
				"the milestone at %d derives or groups its weights: write a number for each source, as `millrace "+
					"check` prints them",
				from,
			)
		}
		at := &proto.WeightsAt{From: from, Tokens: tokens, Ramp: string(k.Ramp), Over: k.Over()}
		for _, w := range k.Weights.Given {
			at.Weights = append(at.Weights, &proto.SourceWeight{Source: w.Source, Weight: w.Value.String()})
		}
		ask.Milestones = append(ask.Milestones, at)
	}
	r.Change = &proto.MixRequest_Schedule{Schedule: ask}
	return nil
}

func (m *mix) costs(r *proto.MixRequest, args []string) error {
	if m.fit == (m.given("linear") || m.given("quadratic")) {
		return errors.New("costs needs either --linear and --quadratic, or --refit")
	}
	r.Change = &proto.MixRequest_Costs{Costs: &proto.Costed{Linear: m.linear, Quadratic: m.quadratic}}
	if m.fit {
		r.Change = &proto.MixRequest_Calibrate{Calibrate: true}
	}
	return m.count(args, 0, "costs takes no more arguments")
}

func (m *mix) show(c *cobra.Command) error {
	reply, err := rundir.AskStatus(c.Context(), m.dir)
	if err != nil {
		return exit.Failuref("the orchestrator of %s does not answer: %v", m.dir, err)
	}
	view := report.NewMixture(reply.Mixture)
	return page(c, func(w *bufio.Writer) error {
		if m.json {
			return report.Encode(w, view)
		}
		return view.Print(w)
	})
}

func (m *mix) ask(c *cobra.Command, request *proto.MixRequest) error {
	var reply *proto.MixReply
	var refused error
	err := rundir.Ask(m.dir, func(client proto.OrchestratorClient) (err error) {
		reply, err = client.Mix(c.Context(), request)
		refused = wire.FromStatus(err)
		return err
	})
	if errors.Is(refused, millrace.ErrInvalid) {
		return exit.Usagef("millrace mix: %w", refused)
	}
	if err != nil {
		return exit.Failuref("change the mixture of %s: %v", m.dir, err)
	}
	view := report.NewChange(reply.Change)
	return page(c, func(w *bufio.Writer) error {
		if m.json {
			return report.Encode(w, view)
		}
		_, err := fmt.Fprintln(w, view.Line())
		return err
	})
}
