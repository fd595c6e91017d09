package config

import (
	"fmt"

	"millrace"
)

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
	Above Above `yaml:"above" jsonschema:"default=mean"`
}

// Above is mean, or a number of tokens.
type Above struct {
	Tokens uint32 // 0: mean
}

// setText reads mean or a number.
func (a *Above) setText(text string, c class) (problem, cure string) {
	a.Tokens = 0
	if text == "mean" {
		return "", ""
	}
	n, problem := parseDecimal(text)
	if problem != "" || c == quoted || !allDigits(text) || n == 0 || n/pow9 > maxMicrobatch || len(text) > 1 && text[0] == '0' {
		return "must be mean or a number of tokens, not " + quote(text), "write mean, or a whole number of tokens as 32768"
	}
	a.Tokens = uint32(n / pow9)
	return "", ""
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
	if v.c.SplitDocuments == nil || !v.sound("split_documents", "layout", "balance") {
		return
	}
	switch {
	case v.c.Layout != millrace.Varlen:
		v.wrongKey("split_documents", "split_documents needs layout varlen", "write `layout: varlen`, or leave split_documents out: slices have no place in packed rows")
	case v.c.Balance == BalanceNone:
		v.wrongKey("split_documents", "with balance none no document is split", "write `balance: fsdp`, or leave split_documents out")
	}
}
