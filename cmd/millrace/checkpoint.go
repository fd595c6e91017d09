package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/app/exit"
	"millrace/app/report"
	"millrace/app/rundir"
	"millrace/checkpoint"
	"millrace/internal/wire"
	"millrace/orchestrator"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/ledger"
	"millrace/proto"
)

func checkpointCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "checkpoint", Short: "Look into the journal of a stopped run", Args: noArgs,
		Long: `Read the journal, the snapshots and the ledger of a stopped run. Only compact changes them; it keeps
everything that the run needs.`,
		Example: "  millrace checkpoint verify runs/a\n  millrace checkpoint dump runs/a | grep quarantined\n  " +
			"millrace checkpoint compact runs/a",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(dumpCommand(), verifyCommand(), compactCommand())
	return c
}

func dumpCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "dump DIR", Short: "Print everything in a run's journal, a line each", Args: exactArgs(1,
			"one run directory"),
		Long: `Print the format, the snapshots, the journal, the ledger, the plans and the index entries of a stopped
run, a line each. DIR is its run directory.`,
		Example: "  millrace checkpoint dump runs/a\n  millrace checkpoint dump runs/a --json",
		RunE: func(c *cobra.Command, args []string) error {
			store, err := openJournal(args[0])
			if err != nil {
				return err
			}
			defer store.Close()
			return page(c, func(w *bufio.Writer) error {
				return store.Dump(w, dumpOptions(asJSON))
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return c
}

func verifyCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "verify DIR", Short: "Check every byte of a run's journal", Args: exactArgs(1, "one run directory"),
		Long: `Read every record, snapshot, ledger entry and plan of a stopped run. Check their checksums, their
references, and the digest chain from step to step. Exit status 1 if a check fails.`,
		Example: "  millrace checkpoint verify runs/a",
		RunE:    func(c *cobra.Command, args []string) error { return verify(c, args[0], asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func verify(c *cobra.Command, dir string, asJSON bool) error {
	store, err := openJournal(dir)
	if err != nil {
		return err
	}
	defer store.Close()
	r, err := store.Verify()
	if err == nil {
		err = orchestrator.VerifyLedger(store, millrace.Train, r.Problem)
	}
	if err != nil {
		return exit.Failure(err)
	}
	err = page(c, func(w *bufio.Writer) error {
		if asJSON {
			return report.Encode(
				w,
				map[string]any{
					"dir":           r.Dir,
					"ok":            r.OK(),
					"format":        r.Format,
					"created_by":    r.CreatedBy,
					"first":         r.First,
					"last":          r.Last,
					"records":       r.Records,
					"snapshots":     r.Snapshots,
					"newest":        r.Newest,
					"entries":       r.Entries,
					"plans":         r.Plans,
					"index_entries": r.LedgerIndex,
					"bytes":         r.Bytes,
					"found":         r.Found,
					"problems":      append([]string{}, r.Problems...),
				},
			)
		}
		_, err := fmt.Fprintf(
			w,
			"%s: format %d, made by millrace %s: %d records (%d to %d), %d snapshots, %d steps in the ledger, %d "+
				"plans, %s\n",
			r.Dir,
			r.Format,
			r.CreatedBy,
			r.Records,
			r.First,
			r.Last,
			r.Snapshots,
			r.Entries,
			r.Plans,
			report.Size(int64(r.Bytes)),
		)
		return err
	})
	if err != nil || r.OK() {
		return err
	}
	for _, p := range r.Problems {
		fmt.Fprintln(c.ErrOrStderr(), p)
	}
	return exit.Failuref(
		"%s: %d problems: restore the directory from a copy, or start a new run directory from the trainer's newest "+
			"checkpoint",
		r.Dir,
		r.Found,
	)
}

func compactCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "compact DIR", Short: "Free the disk space that a run's journal does not need",
		Args: exactArgs(1, "one run directory"),
		Long: `Drop the records and plans that the newest snapshot of a stopped run replaces, and rewrite the files
without them. Plans that a saved checkpoint or the retention needs stay. The ledger's digests and ranges of every step
stay too.`,
		Example: "  millrace checkpoint compact runs/a",
		RunE:    func(c *cobra.Command, args []string) error { return compact(c, args[0], asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// compact opens the store twice: the second opening frees the logs of the first.
func compact(c *cobra.Command, dir string, asJSON bool) error {
	before, after := int64(0), int64(0)
	for _, act := range []func(*checkpoint.Store) error{
		func(s *checkpoint.Store) error { return orchestrator.Retire(s, millrace.Train) },
		func(s *checkpoint.Store) error { return s.Compact(c.Context()) },
	} {
		store, at, err := rundir.OpenJournal(dir, journalConfig(), checkpoint.Open)
		if err != nil {
			return err
		}
		if before == 0 {
			before, err = folderBytes(at)
		}
		if err = errors.Join(err, act(store), store.Close()); err == nil {
			after, err = folderBytes(at)
		}
		if err != nil {
			return exit.Failure(err)
		}
	}
	return page(c, func(w *bufio.Writer) error {
		if asJSON {
			return report.Encode(w, map[string]any{"dir": dir, "bytes_before": before, "bytes": after})
		}
		_, err := fmt.Fprintf(w, "%s: %s before, %s now\n", dir, report.Size(before), report.Size(after))
		return err
	})
}

// folderBytes adds up the sizes of the files in a folder. It ignores files that the open store drops meanwhile.
func folderBytes(dir string) (total int64, err error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		info, err := f.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		total += info.Size()
	}
	return total, nil
}

// describe returns a summary of an entry of a store.
func describe(what string, _ uint8, key checkpoint.StepKey, body []byte) string {
	switch what {
	case "record":
		var r proto.Record
		if pbuf.Unmarshal(body, &r) == nil {
			return describeRecord(&r)
		}
	case "snapshot":
		var s proto.Snapshot
		if pbuf.Unmarshal(body, &s) == nil {
			return fmt.Sprintf(
				"term %d, attempt %d, steps below %d consumed, %d sealed beyond, %d sources", s.Term,
				s.GetAttempt().GetAttempt(), s.Acknowledged, len(s.Sealed), len(s.Manifests),
			)
		}
	case "entry":
		return ledger.DescribeEntry(body)
	case "indexEntry":
		if text, ok := facts.DescribeSettled(key, body); ok {
			return text
		}
		if text, ok := facts.DescribeFiles(key, body); ok {
			return text
		}
		return ledger.DescribeIndexEntry(body)
	case "plan":
		var p proto.Plan
		if pbuf.Unmarshal(body, &p) == nil {
			return fmt.Sprintf(
				"step %d: %d segments on %d ranks of %d microbatches", p.Step, len(p.GetAssignments().GetSource()),
				p.Ranks, p.Microbatches,
			)
		}
	}
	return "unknown"
}

func describeRecord(r *proto.Record) string {
	switch f := r.GetFact().(type) {
	case *proto.Record_Created:
		return fmt.Sprintf("created by millrace %s, planner %d", f.Created.By, f.Created.PlannerVersion)
	case *proto.Record_Term:
		return fmt.Sprintf("term %d", f.Term.Term)
	case *proto.Record_Assigned:
		return fmt.Sprintf("loaders assigned under term %d", f.Assigned.Term)
	case *proto.Record_Pinned:
		m := f.Pinned.GetManifest()
		return fmt.Sprintf("pinned source %s: %d files, shuffle %s", m.GetSource(), wire.CountShards(m), m.GetShuffle())
	case *proto.Record_Opened:
		return fmt.Sprintf("opened attempt %d at step %d on %d ranks", f.Opened.Attempt, f.Opened.Step,
			f.Opened.GetPlacing().GetRanks())
	case *proto.Record_Sealed:
		return fmt.Sprintf("sealed step %d of attempt %d, content %x, chain %x, %d bytes of change", f.Sealed.Step,
			f.Sealed.Attempt, f.Sealed.Content, f.Sealed.Chain, len(f.Sealed.Delta))
	case *proto.Record_Acknowledged:
		return fmt.Sprintf("steps below %d consumed by every rank", f.Acknowledged.Below)
	case *proto.Record_Quarantined:
		ids := make([]string, len(f.Quarantined.Samples))
		for i, q := range f.Quarantined.Samples {
			ids[i] = q.Source + " " + q.Id
		}
		return "quarantined " + strings.Join(ids, ", ")
	case *proto.Record_Masked:
		ids := make([]string, len(f.Masked.Masks))
		for i, m := range f.Masked.Masks {
			ids[i] = fmt.Sprintf("%s %s from token %d on", m.Source, m.GetSample().GetId(), m.Offset)
		}
		return "masked " + strings.Join(ids, ", ")
	case *proto.Record_Ended:
		return fmt.Sprintf("ended after %d steps: %s", f.Ended.Steps, f.Ended.Reason)
	case *proto.Record_Saved:
		return fmt.Sprintf("checkpoint of step %d saved", f.Saved.Step)
	}
	return "unknown fact"
}

func dumpOptions(asJSON bool) checkpoint.DumpOptions {
	return checkpoint.DumpOptions{JSON: asJSON, Describe: describe}
}
