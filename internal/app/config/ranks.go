package config

import (
	"fmt"
	"slices"

	"millrace"
	"millrace/internal/app/config/tree"
	"millrace/internal/app/config/value"
)

// Topology arranges the trainer's ranks. An error names what would divide; it wraps millrace.ErrInvalid.
func (c *Config) Topology(ranks int) (millrace.Topology, error) {
	t := millrace.Topology{Ranks: ranks, TP: int(c.Parallelism.TP), CP: int(c.Parallelism.CP), PP: int(c.Parallelism.PP)}
	if err := t.Validate(); err != nil {
		return t, c.ErrorAt("parallelism", err.Error(), "give another number of ranks")
	}
	if path, msg, cure, ok := c.divides(t.DP(), fmt.Sprintf(" * %d data-parallel ranks", t.DP())); !ok {
		return t, c.ErrorAt(path, msg, fmt.Sprintf("with %d ranks and this micro_batch_size, %s", ranks, cure))
	}
	_, err := c.group(t)
	return t, err
}

// Microbatches returns how many microbatches a step of the stage has on each data-parallel rank, once its batch is whole.
func (s *Stage) Microbatches(t millrace.Topology) uint32 {
	return s.GlobalBatchSize / (s.MicroBatchSize * uint32(t.DP()))
}

// Distribute is over which ranks compute is evened out.
type Distribute struct {
	// Over is what group counts. dp: data-parallel ranks. world: the trainer's ranks, of which tp * cp are one data-parallel rank.
	Over Over `yaml:"over" jsonschema:"default=dp,enum=dp,enum=world"`
	// Group is how many neighbouring ranks, such as those of one host, even out their compute among themselves; sequences are dealt to the groups in turn. Left
	// out: all ranks are one group.
	Group uint32 `yaml:"group" jsonschema:"minimum=1,maximum=1048576"`
}

// Over is what a group of ranks counts.
type Over string

// The axes over which a step is distributed.
const (
	overDP    Over = "dp"
	overWorld Over = "world"
)

// SplitDocuments is which documents are split over ranks: only such as are dearer than the mean microbatch, each over as many ranks as even the step out.
type SplitDocuments struct {
	// Above is how long a document must be besides: mean, where any that is dearer than the mean microbatch is split, or a number of tokens.
	Above value.Above `yaml:"above" jsonschema:"default=mean"`
}

// group returns how many data-parallel ranks are balanced among themselves, 0 for all. An error names the key.
func (c *Config) group(t millrace.Topology) (int, error) {
	if c.Distribute == nil || c.Distribute.Group == 0 {
		return 0, nil
	}
	group, unit := int(c.Distribute.Group), 1
	if c.Distribute.Over == overWorld {
		unit = t.TP * t.CP
	}
	if group%unit != 0 || t.DP()%max(group/unit, 1) != 0 {
		return 0, c.ErrorAt("distribute.group", fmt.Sprintf("%d data-parallel ranks do not divide into groups of %d %s ranks", t.DP(), group, c.Distribute.Over),
			fmt.Sprintf("write %d times a divisor of %d", unit, t.DP()))
	}
	return group / unit, nil
}

// Group returns how many data-parallel ranks of a topology that Topology made are balanced among themselves; 0: all.
func (c *Config) Group(t millrace.Topology) int {
	n, _ := c.group(t) // Topology has refused what does not divide
	return n
}

func (v *validator) checkSpread() {
	if v.c.SplitDocuments == nil || !v.Sound("split_documents", "layout", "balance") {
		return
	}
	switch {
	case v.c.Layout != millrace.Varlen:
		v.wrongKey("split_documents", "split_documents needs layout varlen", "write `layout: varlen`, or leave split_documents out: slices have no place in packed rows")
	case v.c.Balance == millrace.BalanceNone:
		v.wrongKey("split_documents", "with balance none no document is split", "write `balance: fsdp`, or leave split_documents out")
	}
}

// checkAxes: what context parallelism asks of the padding, and what can be broadcast.
func (v *validator) checkAxes() {
	c := v.c
	if v.Sound("parallelism", "pad_multiple", "sequence_length") && c.Parallelism.CP > 1 && uint64(c.PadMultiple)%(2*uint64(c.Parallelism.CP)) != 0 {
		v.wrong(v.written("parallelism.cp"), fmt.Sprintf("cp %d needs documents padded to a multiple of %d tokens, pad_multiple is %d",
			c.Parallelism.CP, 2*c.Parallelism.CP, c.PadMultiple), v.padCure())
	}
	if v.Sound("cp_local", "layout") && c.CPLocal > 0 && c.Layout != millrace.Varlen {
		v.wrong("cp_local", "cp_local needs layout varlen", "write `layout: varlen`, or leave cp_local out: of packed rows every rank has its part of every document")
	}
	for i, axis := range c.Broadcast {
		path := fmt.Sprintf("broadcast[%d]", i)
		switch {
		case axis == "cp":
			v.wrong(path, "context-parallel ranks get slices of their own", "write axes of which all ranks need the same bytes: tp, pp")
		case axis != AxisTP && axis != AxisPP:
			v.wrong(path, "`broadcast` knows no axis "+tree.Quote(string(axis)), "write tp, pp, or both")
		case slices.Contains(c.Broadcast[:i], axis):
			v.wrong(path, tree.Quote(string(axis))+" stands there twice", "write it once")
		}
	}
}

// padCure names the least pad_multiple that goes with cp and the one that is there.
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
	return fmt.Sprintf("write `pad_multiple: %d` and a sequence_length that divides by it; both are part of a run's identity", least)
}
