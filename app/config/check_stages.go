package config

import (
	"fmt"
	"slices"
	"strings"

	"millrace"
	"millrace/app/config/decode"
	"millrace/app/config/tree"
	"millrace/sources/read/filter"
)

// inherit fills in the keys that a stage leaves out.
func (v *validator) inherit() {
	before := v.c.AllStages()[0]
	for i := range v.c.Stages {
		s := &v.c.Stages[i]
		for _, x := range []struct{ own, before *uint32 }{
			{&s.SequenceLength, &before.SequenceLength}, {&s.GlobalBatchSize, &before.GlobalBatchSize},
			{&s.MicroBatchSize, &before.MicroBatchSize},
		} {
			if *x.own == 0 {
				*x.own = *x.before
			}
		}
		if s.Packing == "" {
			s.Packing = before.Packing
		}
		if s.Filters == nil {
			s.Filters = before.Filters
		}
		before = *s
	}
}

// checkStages checks the stages against each other and against the settings of the whole run.
func (v *validator) checkStages() {
	all := v.c.AllStages()
	sound := v.Sound(
		"sequence_length", "global_batch_size", "micro_batch_size", "packing", "rampup_batch_size", "stages",
	)
	for i := range all {
		if i > 0 && !v.checkFrom(i, all) {
			sound = false
		}
		if !v.checkRamp(i, all) {
			sound = false
		}
		if sound {
			v.checkShape(i, &all[i])
		}
	}
	v.checkStageFilters()
	if !sound {
		return
	}
	if path, msg, cure, ok := v.c.divides(1, ""); !ok {
		if path == "global_batch_size" {
			path = v.written("micro_batch_size", path)
		}
		v.wrong(path, msg, cure+", or another micro_batch_size")
	}
}

// checkStageFilters checks the filters that stages write.
func (v *validator) checkStageFilters() {
	for i := range v.c.Stages {
		path := fmt.Sprintf("stages[%d].filters", i)
		if _, ok := v.Place(path); !ok || !v.Sound(path) {
			continue // none, or those of the stage before
		}
		for _, f := range v.c.Stages[i].Filters {
			at := decode.Join(path, f.Source)
			s, known := v.c.Source(f.Source)
			if known {
				v.checkFilter(at, f.Filter, s)
			} else if v.sourcesNamed() {
				v.wrongKey(at, "filter for an unknown source "+tree.Quote(f.Source),
					"the mixture has "+strings.Join(v.c.Sources.Names(), ", "))
			}
		}
	}
	if sets, _ := v.c.StageFilterSets(); v.Sound("stages") && len(sets) >= filter.MostOfASource {
		v.wrong(
			"stages", fmt.Sprintf("the stages have %d different sets of filters", len(sets)),
			fmt.Sprintf("write at most %d", filter.MostOfASource-1),
		)
	}
}

// checkFrom checks the beginning of a stage.
func (v *validator) checkFrom(i int, all []Stage) bool {
	path, s := fmt.Sprintf("stages[%d]", i-1), &all[i]
	if at, _ := v.Place(path); at.Kind != tree.Mapping || !v.Sound(path) {
		return false
	}
	switch given := v.given(path, "from_step", "from_tokens"); len(given) {
	case 0:
		v.wrong(
			path+".from_step", decode.Name(path)+" has neither `from_step` nor `from_tokens`",
			"add `from_step: ` with the step at which it begins",
		)
		return false
	case 2:
		v.wrongKey(path+".from_tokens", decode.Name(path)+" has both `from_step` and `from_tokens`", "keep one of them")
		return false
	}
	if i == 1 {
		return true
	}
	before, beforeTokens := all[i-1].From()
	from, tokens := s.From()
	key, other := ".from_step", ".from_tokens"
	if tokens {
		key, other = other, key
	}
	switch {
	case tokens != beforeTokens:
		v.wrongKey(
			path+key, "stages count in steps or in tokens, not in both",
			"write "+tree.Quote(other[1:])+" as the stage before",
		)
	case from <= before:
		v.wrong(
			path+key, fmt.Sprintf("stages must be in order: %d is not after %d", from, before),
			"sort the stages by "+tree.Quote(key[1:]),
		)
	default:
		return true
	}
	return false
}

// checkRamp checks a stage's ramp. The next stage may cut it off only with a batch size of its own.
func (v *validator) checkRamp(i int, all []Stage) bool {
	s, path := &all[i], stageKey(i, "rampup_batch_size")
	r := s.RampupBatchSize
	if r == nil || !v.Sound(path, stageKey(i, "global_batch_size")) {
		return r == nil
	}
	switch _, tokens := s.From(); {
	case tokens:
		v.wrongKey(path, "`rampup_batch_size` needs a stage that begins by `from_step`",
			"write `from_step`, or several stages with a `global_batch_size` each")
	case r.Start >= s.GlobalBatchSize:
		v.wrong(
			path+".start",
			fmt.Sprintf("the ramp starts at %d, and global_batch_size is %d", r.Start, s.GlobalBatchSize),
			"start below it, or leave `rampup_batch_size` out",
		)
	case (s.GlobalBatchSize-r.Start)%r.Increment != 0:
		v.wrong(
			path+".increment",
			fmt.Sprintf(
				"a ramp from %d in increments of %d does not reach global_batch_size %d", r.Start, r.Increment,
				s.GlobalBatchSize,
			),
			fmt.Sprintf("write a divisor of %d", s.GlobalBatchSize-r.Start),
		)
	case (s.GlobalBatchSize-r.Start)/r.Increment >= millrace.MostRampSizes:
		v.wrong(path+".increment", fmt.Sprintf("the ramp has %d increments", (s.GlobalBatchSize-r.Start)/r.Increment),
			fmt.Sprintf("write a larger one: a ramp has fewer than %d increments", millrace.MostRampSizes))
	default:
		return v.checkWhole(i, all)
	}
	return false
}

// checkWhole refuses a stage without a batch size of its own that begins during the ramp of the stage before.
func (v *validator) checkWhole(i int, all []Stage) bool {
	if i+1 == len(all) {
		return true
	}
	from, _ := all[i].From()
	end := from
	for step := range all[i].RampupBatchSize.Ramp().Sizes(all[i].GlobalBatchSize) {
		end = from + step
	}
	path := fmt.Sprintf("stages[%d]", i)
	next, tokens := all[i+1].From()
	if tokens || next >= end || len(v.given(path, "global_batch_size", "rampup_batch_size")) > 0 || !v.Sound(path) {
		return true
	}
	v.wrong(
		path+".from_step",
		fmt.Sprintf(
			"this stage begins at step %d; the ramp of the stage before reaches global_batch_size %d only at step %d",
			next,
			all[i].GlobalBatchSize,
			end,
		),
		fmt.Sprintf("begin at %d or later, or write the stage's own `global_batch_size`", end),
	)
	return false
}

// checkShape checks a stage's sizes against the settings of the whole run.
func (v *validator) checkShape(i int, s *Stage) {
	c := v.c
	if v.Sound("pad_multiple") && s.SequenceLength%c.PadMultiple != 0 {
		path := "pad_multiple"
		if i > 0 {
			path = stageKey(i, "sequence_length")
		}
		v.wrong(
			path, fmt.Sprintf("pad_multiple %d does not divide sequence_length %d", c.PadMultiple, s.SequenceLength),
			fmt.Sprintf("write a divisor of %d", s.SequenceLength),
		)
	}
	if v.Sound("cap_slack") && c.capTokens(s) > maxMicrobatch {
		v.wrong(v.written(stageKey(i, "micro_batch_size"), stageKey(i, "sequence_length")),
			fmt.Sprintf("a microbatch of %d tokens is too large", c.capTokens(s)),
			fmt.Sprintf("micro_batch_size * sequence_length * cap_slack must be at most %d", maxMicrobatch))
	}
}

func (v *validator) checkSpread() {
	if v.c.SplitDocuments == nil || !v.Sound("split_documents", "layout", "balance") {
		return
	}
	switch {
	case v.c.Layout != millrace.Varlen:
		v.wrongKey(
			"split_documents", "split_documents needs layout varlen",
			"write `layout: varlen`, or leave split_documents out: packed rows cannot hold slices",
		)
	case v.c.Balance == millrace.BalanceNone:
		v.wrongKey(
			"split_documents", "with balance none no document is split",
			"write `balance: fsdp`, or leave split_documents out",
		)
	}
}

// checkAxes checks the padding for context parallelism, and the axes of broadcast and shared_memory.
func (v *validator) checkAxes() {
	c := v.c
	if v.Sound("parallelism", "pad_multiple", "sequence_length") && c.Parallelism.CP > 1 &&
		uint64(c.PadMultiple)%(2*uint64(c.Parallelism.CP)) != 0 {
		v.wrong(
			v.written("parallelism.cp"),
			fmt.Sprintf("cp %d needs documents padded to a multiple of %d tokens, pad_multiple is %d",
				c.Parallelism.CP, 2*c.Parallelism.CP, c.PadMultiple),
			v.padCure(),
		)
	}
	if v.Sound("cp_local", "layout") && c.CPLocal > 0 && c.Layout != millrace.Varlen {
		v.wrong(
			"cp_local", "cp_local needs layout varlen",
			"write `layout: varlen`, or leave cp_local out: with packed rows, every rank gets a part of every document",
		)
	}
	v.checkSameBytes("broadcast", c.Broadcast)
	v.checkSameBytes("shared_memory", c.SharedMemory)
	v.checkMiddle("broadcast", c.Broadcast)
	v.checkMiddle("shared_memory", c.SharedMemory)
}

// checkMiddle checks that pipeline stages which get other tensors than the rest are not along a list of axes.
func (v *validator) checkMiddle(key string, axes []Axis) {
	if v.c.MiddleStages == Positions && slices.Contains(axes, AxisPP) {
		v.wrong("middle_stages", fmt.Sprintf("%s has pp, and the middle stages get other tensors than the first", key),
			fmt.Sprintf("leave pp out of %s, or leave middle_stages out", key))
	}
}

// checkSameBytes checks a list of axes whose ranks need the same bytes.
func (v *validator) checkSameBytes(key string, axes []Axis) {
	for i, axis := range axes {
		path := fmt.Sprintf("%s[%d]", key, i)
		switch {
		case axis == "cp":
			v.wrong(
				path, "context-parallel ranks get slices of their own",
				"write axes whose ranks need the same bytes: tp, pp",
			)
		case axis != AxisTP && axis != AxisPP:
			v.wrong(path, tree.Quote(key)+" has no axis "+tree.Quote(string(axis)), "write tp, pp, or both")
		case slices.Contains(axes[:i], axis):
			v.wrong(path, tree.Quote(string(axis))+" is listed twice", "write it once")
		}
	}
}

// padCure names the least pad_multiple for cp and the present pad_multiple.
func (v *validator) padCure() string {
	pad, chunks := uint64(v.c.PadMultiple), 2*uint64(v.c.Parallelism.CP)
	a, b := pad, chunks
	for b != 0 {
		a, b = b, a%b
	}
	least := pad / a * chunks
	if !slices.ContainsFunc(v.c.AllStages(), func(s Stage) bool { return uint64(s.SequenceLength)%least != 0 }) {
		return fmt.Sprintf("write `pad_multiple: %d`; it is part of a run's identity", least)
	}
	return fmt.Sprintf(
		"write `pad_multiple: %d` and a sequence_length that divides by it; both are part of a run's identity", least,
	)
}
