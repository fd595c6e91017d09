package main

import (
	"bufio"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/app/config"
	"millrace/app/exit"
	"millrace/app/report"
	"millrace/proto"
)

func mixCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "mix",
		Short: "Change the mixture of a run while it goes on, or show it",
		Long: `Change the mixture of a run while it goes on, or show it. DIR is its run directory.

A change takes effect on every rank at the same step: at --from-step, or at the next step that is not planned. It is
journaled first, so the run gives the same batches after every restart. Trainers' states carry it. It stays in force
when the ranks start again from an earlier state, unless load_state_dict gets override=["mixture.changes"].
With --next-attempt, a change may name a step that is planned. It holds once the ranks start again at or
before that step.`,
		Example: "  millrace mix show runs/a\n" +
			"  millrace mix set runs/a web=0.5 code=0.3 books=0.2 --ramp linear --over-steps 500\n" +
			"  millrace mix skip runs/a --from-step 41200 --to-step 41260 --next-attempt",
		DisableFlagParsing: true, // oldMix passes the flags on
		RunE:               oldMix,
	}
	c.AddCommand(mixShow(), mixSet(), mixSchedule(), mixSkip(), mixAdd(), mixRemove(), mixCosts())
	return c
}

// oldMix runs `mix DIR VERB`, the form of earlier versions, as `mix VERB DIR`.
func oldMix(c *cobra.Command, args []string) error {
	if len(args) == 0 || slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		return c.Help()
	}
	var verbs []string
	for _, verb := range c.Commands() {
		verbs = append(verbs, verb.Name())
	}
	at := slices.IndexFunc(args[1:], func(arg string) bool { return slices.Contains(verbs, arg) }) + 1
	if at == 0 {
		return exit.Usagef("%s: unknown verb %q: want `%s VERB DIR`, with one of %s: see `%s --help`", c.CommandPath(),
			args[0], c.CommandPath(), strings.Join(verbs, ", "), c.CommandPath())
	}
	verb := args[at]
	oldForm(c, "mix DIR "+verb, "mix "+verb+" DIR")
	root := c.Root()
	root.SetArgs(append([]string{"mix", verb}, slices.Delete(slices.Clone(args), at, at+1)...))
	return root.ExecuteContext(c.Context())
}

// mixFlags are the flags of every verb of `millrace mix`.
type mixFlags struct {
	stream string
	json   bool
}

func (m *mixFlags) add(f *pflag.FlagSet) {
	streamFlag(f, &m.stream)
	f.BoolVar(&m.json, "json", false, "print one JSON object")
}

func mixShow() *cobra.Command {
	var m mixFlags
	var to string
	c := &cobra.Command{
		Use:     "show DIR",
		Short:   "Print the mixture in force",
		Long:    "Print the weights in force, the schedule from here on, and every change of the mixture of a run.",
		Example: "  millrace mix show runs/a\n  millrace mix show runs/a --json",
		Args:    exactArgs(1, "one run directory"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkTo(c, to, "json"); err != nil {
				return err
			}
			run, err := runAt(args[0], m.stream)
			if err != nil {
				return err
			}
			view, err := run.Mixture(c.Context())
			if err != nil {
				return err
			}
			if to != "" {
				return table(to, view.Rows())
			}
			return page(c, func(w *bufio.Writer) error {
				if m.json {
					return report.Encode(w, view)
				}
				return view.Print(w)
			})
		},
	}
	m.add(c.Flags())
	toFlag(c, &to)
	return c
}

// changes makes a verb ask for a change. fill writes the change into the request, from the arguments behind DIR.
func changes(c *cobra.Command, fill func(request *proto.MixRequest, args []string) error) *cobra.Command {
	var m mixFlags
	request := &proto.MixRequest{}
	f := c.Flags()
	f.Uint64Var(&request.From, "from-step", 0, "the first step to change (default: the next one that is not planned)")
	f.BoolVar(&request.Later, "next-attempt", false,
		"take effect when the ranks start again at or before --from-step")
	m.add(f)
	c.RunE = func(c *cobra.Command, args []string) error {
		request.HasFrom = f.Changed("from-step")
		if err := fill(request, args[1:]); err != nil {
			return exit.Usagef("%s: %w", c.CommandPath(), err)
		}
		run, err := runAt(args[0], m.stream)
		if err != nil {
			return err
		}
		view, err := run.Change(c.Context(), request)
		if err != nil {
			return err
		}
		return page(c, func(w *bufio.Writer) error {
			if m.json {
				return report.Encode(w, view)
			}
			_, err := fmt.Fprintln(w, view.Line())
			return err
		})
	}
	return c
}

func mixSet() *cobra.Command {
	ask := &proto.SetWeights{}
	c := &cobra.Command{
		Use:   "set DIR NAME=WEIGHT…",
		Short: "Give each source a weight, in place of the schedule",
		Long: `Give each source a weight, in place of the schedule, from a step on. Weights are relative.

With --ramp, the old weights go over to the new ones within --over-steps steps.`,
		Example: "  millrace mix set runs/a web=0.5 code=0.3 books=0.2 --ramp linear --over-steps 500",
		Args:    leastArgs(2, "a run directory and the weight of each source, such as web=0.5 code=0.5"),
	}
	c.Flags().StringVar(&ask.Ramp, "ramp", "none", "none, linear or cosine")
	c.Flags().Uint64Var(&ask.Over, "over-steps", 0, "the length of the ramp in steps")
	return changes(c, func(r *proto.MixRequest, args []string) (err error) {
		r.Change = &proto.MixRequest_Set{Set: ask}
		ask.Weights, err = weights(args)
		return err
	})
}

func mixSchedule() *cobra.Command {
	return changes(&cobra.Command{
		Use:   "schedule DIR FILE",
		Short: "Replace the schedule by that of a file",
		Long: `Replace the schedule of the mixture by that of a file, from the file's first entry on.

FILE holds a list as under mixture.schedule of a mixture file, with a number for each source.`,
		Example: "  millrace mix schedule runs/a schedule.yaml",
		Args:    exactArgs(2, "a run directory and the file of a schedule"),
	}, func(r *proto.MixRequest, args []string) error {
		ask, err := schedule(args[0])
		r.Change = &proto.MixRequest_Schedule{Schedule: ask}
		return err
	})
}

func mixSkip() *cobra.Command {
	ask := &proto.Skipped{}
	c := &cobra.Command{
		Use:   "skip DIR --from-step A --to-step B",
		Short: "Pass over the data of some steps",
		Long: `Pass over the data of steps A to B, B excluded: step A gets the data that step B would have had.

After a loss spike, give --next-attempt, and start the ranks from a state before step A.`,
		Example: "  millrace mix skip runs/a --from-step 41200 --to-step 41260 --next-attempt",
		Args:    exactArgs(1, "one run directory"),
	}
	c.Flags().Uint64Var(&ask.To, "to-step", 0, "the first step whose data is not passed over")
	return changes(c, func(r *proto.MixRequest, _ []string) error {
		r.Change = &proto.MixRequest_Skip{Skip: ask}
		if !r.HasFrom || !c.Flags().Changed("to-step") {
			return errors.New("skip needs --from-step and --to-step")
		}
		return nil
	})
}

func mixAdd() *cobra.Command {
	return changes(&cobra.Command{
		Use:   "add-source DIR NAME=WEIGHT",
		Short: "Give a weight to a source that has 0",
		Long:  "Give a weight to a source that has weight 0, from a step on. The other sources together weigh 1.",
		Args:  exactArgs(2, "a run directory and the weight of one source, such as web=0.5"),

		Example: "  millrace mix add-source runs/a books=0.1",
	}, func(r *proto.MixRequest, args []string) error {
		list, err := weights(args)
		if err != nil {
			return err
		}
		r.Change = &proto.MixRequest_Add{Add: &proto.AddSource{Source: list[0].Source, Weight: list[0].Weight}}
		return nil
	})
}

func mixRemove() *cobra.Command {
	return changes(&cobra.Command{
		Use:     "remove-source DIR NAME",
		Short:   "Give a source weight 0",
		Long:    `Give a source weight 0 from a step on. The run leaves out the rest of a document that it has begun.`,
		Example: "  millrace mix remove-source runs/a books",
		Args:    exactArgs(2, "a run directory and the name of one source"),
	}, func(r *proto.MixRequest, args []string) error {
		r.Change = &proto.MixRequest_Remove{Remove: args[0]}
		return nil
	})
}

func mixCosts() *cobra.Command {
	ask, fit := &proto.Costed{}, false
	c := &cobra.Command{
		Use:   "costs DIR --linear A --quadratic B | --refit",
		Short: "Change the coefficients of the predicted cost",
		Long: `Predict the costs of segments with other coefficients, from a step on.

--refit takes the coefficients that fit the times best that trainers reported.`,
		Example: "  millrace mix costs runs/a --linear 61000 --quadratic 1\n  millrace mix costs runs/a --refit",
		Args:    exactArgs(1, "one run directory"),
	}
	f := c.Flags()
	f.Uint64Var(&ask.Linear, "linear", 0, "the cost of a token")
	f.Uint64Var(&ask.Quadratic, "quadratic", 0, "the cost of a pair of tokens of one document")
	f.BoolVar(&fit, "refit", false, "fit them to the times that trainers reported")
	return changes(c, func(r *proto.MixRequest, _ []string) error {
		if fit == (f.Changed("linear") || f.Changed("quadratic")) {
			return errors.New("costs needs either --linear and --quadratic, or --refit")
		}
		r.Change = &proto.MixRequest_Costs{Costs: ask}
		if fit {
			r.Change = &proto.MixRequest_Calibrate{Calibrate: true}
		}
		return nil
	})
}

// weights reads NAME=WEIGHT arguments. A name may contain an equals sign.
func weights(args []string) ([]*proto.SourceWeight, error) {
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

// schedule reads the file of a schedule.
func schedule(path string) (*proto.SetSchedule, error) {
	milestones, err := config.LoadMilestones(path)
	if err != nil {
		return nil, err
	}
	ask := &proto.SetSchedule{}
	for i := range milestones {
		k := &milestones[i]
		from, tokens := k.From()
		if k.Weights.Derived != nil || len(k.Groups) > 0 {
			return nil, fmt.Errorf(
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
	return ask, nil
}
