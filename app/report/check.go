package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"millrace/app/dryrun"
	"millrace/orchestrator/planner"
)

// mostSkipped is the number of skipped files of a source that are printed; JSON has all.
const mostSkipped = 20

func printSkipped(w io.Writer, s *dryrun.SourceReport) {
	if len(s.Skipped) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s: files of its path that are not read: %d\n", s.Name, len(s.Skipped))
	for _, f := range s.Skipped[:min(len(s.Skipped), mostSkipped)] {
		fmt.Fprintf(w, "  %s: %s\n", f.Path, f.Why)
	}
	if n := len(s.Skipped) - mostSkipped; n > 0 {
		fmt.Fprintf(w, "  … and %d more; --json lists them\n", n)
	}
}

// PrintCheck writes the report of `millrace check` for people, also those of further streams.
func PrintCheck(w io.Writer, r *dryrun.Report) error {
	if err := printStream(w, r); err != nil {
		return err
	}
	for _, warning := range r.Shared {
		fmt.Fprintf(w, "\nwarning: %s\n", warning)
	}
	for _, name := range Names(r.Streams) {
		fmt.Fprintf(w, "\nSTREAM %s\n\n", name)
		if err := printStream(w, r.Streams[name]); err != nil {
			return err
		}
	}
	return nil
}

// printLeftOut prints the records that a source's filter and its rule for missing fields leave out, and the documents
// that are too long.
func printLeftOut(w io.Writer, s *dryrun.SourceReport) {
	if s.Refused > 0 {
		fmt.Fprintf(
			w, "\n%s: its filter refuses %s of %s records; TOKENS counts the others\n", s.Name,
			About(s.Refused, s.TokensExact), About(s.Records, s.RecordsExact),
		)
	}
	if s.TooLong > 0 {
		fmt.Fprintf(
			w, "\n%s: %s of %s documents are longer than the source allows (too_long)\n", s.Name,
			About(s.TooLong, s.TokensExact), About(s.Records, s.RecordsExact),
		)
	}
	if s.Missing > 0 {
		fmt.Fprintf(
			w, "\n%s: %s of %s records lack a field and are left out (missing: skip)\n", s.Name,
			About(s.Missing, s.TokensExact), About(s.Records, s.RecordsExact),
		)
	}
}

// printEstimates prints the predictions of the report about the run and this host.
func printEstimates(w io.Writer, r *dryrun.Report) error {
	fmt.Fprintln(w)
	printTokenizer(w, r.Tokenizer)
	printRun(w, &r.Run)
	if len(r.Run.Stages) > 0 {
		if err := printStages(w, &r.Run); err != nil {
			return err
		}
	}
	for i := range r.Sources {
		printDry(w, &r.Sources[i], r.Run.Exact)
	}
	if len(r.FirstSteps) > 0 {
		if err := printFirst(w, r); err != nil {
			return err
		}
	}
	if err := printPrices(w, r); err != nil {
		return err
	}
	if err := printReadings(w, r); err != nil {
		return err
	}
	if err := printFetches(w, r); err != nil {
		return err
	}
	m := &r.Memory
	fmt.Fprintln(w)
	printLongest(w, r.Longest)
	printProcesses(w, &r.Run)
	fmt.Fprintf(w, "context parallelism that pad_multiple allows: %v\n", r.CPSizes)
	if len(r.FirstSteps) > 0 {
		fmt.Fprintf(w, "max/mean cost of the context-parallel ranks in step 0: %.4f\n", r.FirstSteps[0].Context)
	}
	fmt.Fprintf(w, "sidecar memory: %s needed of %s; the tokens of a step take %s, and loaders hold %d steps in %s\n",
		Size(m.SidecarNeeded), Size(m.SidecarLimit), Size(m.StepPayload), m.PayloadSteps, Size(m.LoaderLimit))
	return nil
}

func printStream(w io.Writer, r *dryrun.Report) error {
	if len(r.Sources) > 0 {
		if err := printSources(w, r); err != nil {
			return err
		}
	}
	for _, s := range r.Sources {
		printSkipped(w, &s)
		if s.Why != "" {
			fmt.Fprintf(w, "\n%s is shuffled in blocks: %s\n  With `seekable_copies: true` it is shuffled globally, "+
				"and copies in index_dir take about the bytes of such files.\n", s.Name, s.Why)
		}
		printLeftOut(w, &s)
		if s.FilesRead < s.Files {
			fmt.Fprintf(
				w, "\n%s: %d of %d files were read to their end; --deep reads all\n", s.Name, s.FilesRead, s.Files,
			)
		}
	}
	if r.OK || len(r.FirstSteps) > 0 { // the estimates of a run that cannot begin would hide the reason
		if err := printEstimates(w, r); err != nil {
			return err
		}
	}
	if r.Quarantined.Count > 0 {
		fmt.Fprintf(w, "\nrecords that cannot be decoded and would be quarantined: %d\n", r.Quarantined.Count)
	}
	for _, q := range r.Quarantined.Recent {
		fmt.Fprintf(w, "  %s %s at byte %d: %s\n", q.Source, q.ID, q.Offset, q.Reason)
	}
	if r.OK && !r.Payload {
		fmt.Fprintf(
			w,
			"\n%s is valid and can be planned on %d ranks; a run cannot serve it, because sources of format lengths "+
				"hold no tokens\n",
			r.Mixture,
			r.Ranks,
		)
		return nil
	}
	if r.OK {
		fmt.Fprintf(w, "\n%s is valid and can be run on %d ranks\n", r.Mixture, r.Ranks)
		return nil
	}
	if len(r.Sources) > 0 {
		fmt.Fprintln(w)
	}
	_, err := fmt.Fprintf(w, "%s cannot be run; problems, on stderr: %d\n", r.Mixture, len(r.Problems))
	return err
}

// printLongest writes the part of a step that one document has at most, and the cure if it is large.
func printLongest(w io.Writer, l *dryrun.LongestReport) {
	if l == nil {
		return
	}
	how, known := "consecutive", ""
	if l.Shuffled {
		how = "shuffled"
	}
	if !l.Exact {
		known = ", of the lengths that are known"
	}
	fmt.Fprintf(w, "longest document: about %s of a step and %s of ten steps (%s tokens, source %s, pieces %s%s)\n",
		Percent(l.Step), Percent(l.TenSteps), Count(uint64(l.Tokens)), l.Source, how, known)
	if l.Recommend {
		fmt.Fprintf(
			w,
			"  `long_documents: shuffle` at this source brings it to about %s of a step\n",
			Percent(l.IfSpread),
		)
	}
}

// printFirst writes the first steps, and the cost of the first one by rank. A single data-parallel rank waits for no
// other, so it has fewer columns.
func printFirst(w io.Writer, r *dryrun.Report) error {
	balance, several := r.FirstSteps[0].Explain.Balance, len(r.FirstSteps[0].Explain.Ranks) > 1
	rows := []string{Row("\nSTEP", "TOKENS", "FILL", "CONTENT")}
	if several {
		rows[0] = Row("\nSTEP", "TOKENS", "FILL", "STRANDED", "BALANCE", "RANKS", "BOUND", "GAP", "CONTENT")
	}
	for _, s := range r.FirstSteps {
		e := s.Explain
		if !several {
			rows = append(rows, Row(s.Step, Count(s.Tokens), Percent(s.Fill), s.Content))
			continue
		}
		rows = append(
			rows,
			Row(
				s.Step, Count(s.Tokens), Percent(s.Fill), Count(e.Stranded), fmt.Sprintf("%.4f", s.Balance),
				fmt.Sprintf("%.4f", s.Ranks), fmt.Sprintf("%.4f", 1+e.Bound.Of(balance)), Percent(e.Gap.Of(balance)),
				s.Content,
			),
		)
	}
	if err := Table(w, rows...); err != nil || !several {
		return err
	}
	fmt.Fprintf(w, `STRANDED is the number of places in the step that hold no document.
BALANCE is max/mean cost of the microbatches that ranks do at once, RANKS of the ranks' sums; 1 is even.
BOUND is a lower bound of the step's cost with balance: %s, of the mean rank's. No placement costs less.
GAP is how much the step costs above BOUND. Another placement saves at most that; millrace plan --explain says more.

`, balance)
	printRanks(w, r.FirstSteps[0].Explain)
	return nil
}

// printPrices writes the cost of other settings.
func printPrices(w io.Writer, r *dryrun.Report) error {
	if r.Prices == nil || len(r.Prices.Choices) < 2 {
		return nil
	}
	several := len(r.FirstSteps) > 0 && len(r.FirstSteps[0].Explain.Ranks) > 1
	moved := func(text string, cells ...any) string {
		if several {
			cells = append(cells, text)
		}
		return Row(cells...)
	}
	rows := []string{moved("MOVED", "\nCHOICE", "FSDP", "DP", "PP", "FILL", "LARGEST")}
	for _, c := range r.Prices.Choices {
		rows = append(
			rows,
			moved(
				fmt.Sprintf("%.2f", c.MovedMean), c.Choice, Percent(c.Overhead.FSDP), Percent(c.Overhead.DP),
				Percent(c.Overhead.PP), Percent(c.Fill), Count(uint64(c.Largest)),
			),
		)
	}
	if err := Table(w, rows...); err != nil {
		return err
	}
	fmt.Fprintf(w, `The cost of the first %d steps with other settings.
FSDP, DP and PP are the overhead over the mean rank if ranks wait in every microbatch, once a step, or in a pipeline.
LARGEST is the number of tokens in the fullest microbatch.
`, r.Prices.Steps)
	if several {
		fmt.Fprintln(w, "MOVED is the mean number of steps by which window and carry move a document.")
	}
	return nil
}

func printSources(w io.Writer, r *dryrun.Report) error {
	hasUntrained := slices.ContainsFunc(r.Sources, func(s dryrun.SourceReport) bool { return s.Trained != nil })
	head := []any{"SOURCE", "FORMAT", "FILES", "SIZE", "RECORDS", "TOKENS"}
	if hasUntrained {
		head = append(head, "TRAINED")
	}
	rows := []string{Row(append(head, "SHUFFLE", "EPOCHS", "TARGET", "SHARE", "BAD")...)}
	for _, s := range r.Sources {
		epochs := "endless"
		if s.Epochs > 0 {
			epochs = fmt.Sprintf("%d, then %s", s.Epochs, s.OnExhausted)
		}
		share := "-"
		if len(r.FirstSteps) > 0 {
			share = Percent(s.Share)
		}
		row := []any{s.Name, s.Format, s.Files, Size(s.Bytes), About(s.Records, s.RecordsExact),
			About(s.Tokens, s.TokensExact)}
		switch {
		case s.Trained != nil:
			row = append(row, About(*s.Trained, s.TokensExact))
		case hasUntrained:
			row = append(row, "all")
		}
		rows = append(rows, Row(append(row, s.Shuffle, epochs, Percent(s.Target), share,
			fmt.Sprintf("%d of %d allowed", s.Bad, s.Allowed))...))
	}
	return Table(w, rows...)
}

func printTokenizer(w io.Writer, t *dryrun.TokenizerReport) {
	if t == nil {
		return
	}
	special := func(text *string, id *uint32) string {
		if text == nil {
			return "none"
		}
		return fmt.Sprintf("%s (%d)", *text, *id)
	}
	fmt.Fprintf(w, "tokenizer: %s, pattern %s, vocabulary of %s ids, bos %s, eos %s\n",
		t.Name, t.Pattern, Count(uint64(t.Vocabulary)), special(t.BOS, t.BOSID), special(t.EOS, t.EOSID))
}

func printRun(w io.Writer, run *dryrun.RunReport) {
	switch {
	case run.Endless:
		fmt.Fprintf(w, "run: endless, %d microbatches a step and rank\n", run.Microbatches)
	case run.Steps != nil:
		fmt.Fprintf(w, "run: %s steps, %s tokens, %d microbatches a step and rank; it ends when %s\n",
			About(*run.Steps, run.Exact), About(*run.Tokens, run.Exact), run.Microbatches, ending(run.Reason))
	}
}

// ending returns the reason of a run's end, to follow the words "it ends when". A reason may have further words after a
// semicolon.
func ending(reason string) string {
	why, more, _ := strings.Cut(reason, ";")
	switch planner.Reason(why) {
	case planner.SourcesThrough:
		why = "its sources are exhausted"
	case planner.SourceStopped:
		why = "a source with on_exhausted: stop is exhausted"
	case planner.StepsReached:
		why = "stop.steps is reached"
	case planner.TokensReached:
		why = "stop.tokens is reached"
	}
	if more == "" {
		return why
	}
	return why + ";" + more
}

// printStages writes the stages and their batches.
func printStages(w io.Writer, run *dryrun.RunReport) error {
	rows := []string{Row("\nSTAGE", "FROM", "BEGINS", "SEQUENCE", "BATCH", "MICRO", "MICROBATCHES", "PACKING")}
	for i, s := range run.Stages {
		from := "-"
		switch {
		case s.FromTokens != nil:
			from = Count(*s.FromTokens) + " tokens"
		case s.FromStep != nil:
			from = fmt.Sprintf("step %d", *s.FromStep)
		}
		begins := "not in this run"
		if s.Begins != nil {
			begins = "step " + About(*s.Begins, run.Exact || s.FromTokens == nil)
		}
		batch := Count(uint64(s.GlobalBatch))
		if n := len(s.Sizes); n > 0 {
			batch = fmt.Sprintf("%d … %d", s.Sizes[0].Sequences, s.GlobalBatch)
		}
		rows = append(rows, Row(i, from, begins, s.SequenceLength, batch, s.MicroBatch, s.Microbatches, s.Packing))
	}
	if err := Table(w, rows...); err != nil {
		return err
	}
	for i, s := range run.Stages {
		if n := len(s.Sizes); n > 1 {
			fmt.Fprintf(
				w, "the batch of stage %d grows from %d in step %d to %d in step %d\n", i, s.Sizes[0].Sequences,
				s.Sizes[0].Step, s.GlobalBatch, s.Sizes[n-1].Step,
			)
		}
	}
	return nil
}

// printProcesses writes the numbers of loaders and shadows.
func printProcesses(w io.Writer, run *dryrun.RunReport) {
	lost := "which take over the sources of a lost loader"
	if run.Shadows == 0 {
		lost = "so the run waits for the restart of a lost loader"
	}
	loaders := fmt.Sprint(run.Loaders)
	if run.MostLoaders > 0 {
		loaders += fmt.Sprintf(" to %d", run.MostLoaders)
	}
	fmt.Fprintf(w, "loaders on a host like this: %s; shadows: %d, %s\n", loaders, run.Shadows, lost)
	if len(run.Stripes) > 0 {
		fmt.Fprintf(w, "stripes by the profile: %s; the loaders share them by their work\n", stripes(run.Stripes))
	}
}

// stripes names the sources with several stripes, and counts the others.
func stripes(of map[string]int) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if n := of[name]; n > 1 {
			out = append(out, fmt.Sprintf("%s %d", name, n))
		}
	}
	if others := len(of) - len(out); others > 0 {
		out = append(out, fmt.Sprintf("each of %d sources 1", others))
	}
	return strings.Join(out, ", ")
}

func printDry(w io.Writer, s *dryrun.SourceReport, exact bool) {
	if s.DryStep != nil {
		fmt.Fprintf(w, "  %s is exhausted in step %s%s\n", s.Name, About(*s.DryStep, exact), map[string]string{
			"renormalize": "; the others divide its share", "stop": "; the run ends",
			"error": "; the run fails"}[s.OnExhausted])
	} else if s.Passes != nil {
		fmt.Fprintf(w, "  %s is read %.3f times\n", s.Name, *s.Passes)
	}
	if s.StaleStep != nil {
		fmt.Fprintf(
			w,
			"  warning: from step %s on, %s is read for the fifth time or more, and repeated data is worth less "+
				"each time: write `max_epochs: %d`\n"+
				"    with `on_exhausted: renormalize` so that it leaves, lower its weight, or derive weights by "+
				"unimax (docs/mixing.md)\n",
			About(*s.StaleStep, exact),
			s.Name,
			dryrun.Fresh,
		)
	}
}

// printFetches writes the bytes that loaders fetch of each source in an object store.
func printFetches(w io.Writer, r *dryrun.Report) error {
	rows := []string{Row("\nSTORAGE", "SIZE", "NEEDED", "FIRST PASS", "RUN")}
	for _, s := range r.Sources {
		if s.Storage == nil {
			continue
		}
		run, about := "endless", ""
		if s.Storage.Run != nil {
			run = "~" + Size(*s.Storage.Run)
		}
		if !s.Storage.Exact {
			about = "~"
		}
		rows = append(rows, Row(s.Name, Size(s.Bytes), about+Size(s.Storage.Needed), "~"+Size(s.Storage.Pass), run))
	}
	if len(rows) == 1 {
		return nil
	}
	if err := Table(w, rows...); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "NEEDED counts the bytes of the files that a pass takes, FIRST PASS and RUN those that "+
		"loaders fetch from the store.")
	return err
}
