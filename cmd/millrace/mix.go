package main

import (
	"bufio"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/app/exit"
	"millrace/app/query"
	"millrace/app/report"
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

// changes makes a verb ask for a change. read returns the change, from the arguments behind DIR.
func changes(c *cobra.Command, read func(args []string) (query.Change, error)) *cobra.Command {
	var m mixFlags
	var request query.Request
	f := c.Flags()
	f.Uint64Var(&request.From, "from-step", 0, "the first step to change (default: the next one that is not planned)")
	f.BoolVar(&request.Later, "next-attempt", false,
		"take effect when the ranks start again at or before --from-step")
	m.add(f)
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		request.HasFrom = f.Changed("from-step")
		if request.Change, err = read(args[1:]); err != nil {
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
	ramp, over := "", uint64(0)
	c := &cobra.Command{
		Use:   "set DIR NAME=WEIGHT…",
		Short: "Give each source a weight, in place of the schedule",
		Long: `Give each source a weight, in place of the schedule, from a step on. Weights are relative.

With --ramp, the old weights go over to the new ones within --over-steps steps.`,
		Example: "  millrace mix set runs/a web=0.5 code=0.3 books=0.2 --ramp linear --over-steps 500",
		Args:    leastArgs(2, "a run directory and the weight of each source, such as web=0.5 code=0.5"),
	}
	c.Flags().StringVar(&ramp, "ramp", "none", "none, linear or cosine")
	c.Flags().Uint64Var(&over, "over-steps", 0, "the length of the ramp in steps")
	return changes(c, func(args []string) (query.Change, error) { return query.SetWeights(args, ramp, over) })
}

func mixSchedule() *cobra.Command {
	return changes(&cobra.Command{
		Use:   "schedule DIR FILE",
		Short: "Replace the schedule by that of a file",
		Long: `Replace the schedule of the mixture by that of a file, from the file's first entry on.

FILE holds a list as under mixture.schedule of a mixture file, with a number for each source.`,
		Example: "  millrace mix schedule runs/a schedule.yaml",
		Args:    exactArgs(2, "a run directory and the file of a schedule"),
	}, func(args []string) (query.Change, error) { return query.SetSchedule(args[0]) })
}

func mixSkip() *cobra.Command {
	to := uint64(0)
	c := &cobra.Command{
		Use:   "skip DIR --from-step A --to-step B",
		Short: "Pass over the data of some steps",
		Long: `Pass over the data of steps A to B, B excluded: step A gets the data that step B would have had.

After a loss spike, give --next-attempt, and start the ranks from a state before step A.`,
		Example: "  millrace mix skip runs/a --from-step 41200 --to-step 41260 --next-attempt",
		Args:    exactArgs(1, "one run directory"),
	}
	c.Flags().Uint64Var(&to, "to-step", 0, "the first step whose data is not passed over")
	return changes(c, func([]string) (query.Change, error) {
		if !c.Flags().Changed("from-step") || !c.Flags().Changed("to-step") {
			return nil, errors.New("skip needs --from-step and --to-step")
		}
		return query.SkipTo(to), nil
	})
}

func mixAdd() *cobra.Command {
	return changes(&cobra.Command{
		Use:   "add-source DIR NAME=WEIGHT",
		Short: "Give a weight to a source that has 0",
		Long:  "Give a weight to a source that has weight 0, from a step on. The other sources together weigh 1.",
		Args:  exactArgs(2, "a run directory and the weight of one source, such as web=0.5"),

		Example: "  millrace mix add-source runs/a books=0.1",
	}, func(args []string) (query.Change, error) { return query.AddSource(args[0]) })
}

func mixRemove() *cobra.Command {
	return changes(&cobra.Command{
		Use:     "remove-source DIR NAME",
		Short:   "Give a source weight 0",
		Long:    `Give a source weight 0 from a step on. The run leaves out the rest of a document that it has begun.`,
		Example: "  millrace mix remove-source runs/a books",
		Args:    exactArgs(2, "a run directory and the name of one source"),
	}, func(args []string) (query.Change, error) { return query.RemoveSource(args[0]), nil })
}

func mixCosts() *cobra.Command {
	linear, quadratic, fit := uint64(0), uint64(0), false
	c := &cobra.Command{
		Use:   "costs DIR --linear A --quadratic B | --refit",
		Short: "Change the coefficients of the predicted cost",
		Long: `Predict the costs of segments with other coefficients, from a step on.

--refit takes the coefficients that fit the times best that trainers reported.`,
		Example: "  millrace mix costs runs/a --linear 61000 --quadratic 1\n  millrace mix costs runs/a --refit",
		Args:    exactArgs(1, "one run directory"),
	}
	f := c.Flags()
	f.Uint64Var(&linear, "linear", 0, "the cost of a token")
	f.Uint64Var(&quadratic, "quadratic", 0, "the cost of a pair of tokens of one document")
	f.BoolVar(&fit, "refit", false, "fit them to the times that trainers reported")
	return changes(c, func([]string) (query.Change, error) {
		switch {
		case fit == (f.Changed("linear") || f.Changed("quadratic")):
			return nil, errors.New("costs needs either --linear and --quadratic, or --refit")
		case fit:
			return query.Refit(), nil
		}
		return query.SetCosts(linear, quadratic), nil
	})
}
