package config

import (
	"fmt"
	"math"
	"slices"

	"millrace"
	"millrace/app/config/decode"
	"millrace/app/config/tree"
	"millrace/app/config/value"
	"millrace/sources/find"
)

// validator checks keys against each other and fills in the defaults that depend on other keys.
type validator struct {
	*decode.Decoder
	c *Config
}

// wrong reports a mistake at the value of a path, or at the mapping around it.
func (v *validator) wrong(path, msg, cure string) {
	at, _ := v.Place(path)
	v.Fail(path, at, msg, cure)
}

// wrongKey reports a mistake at a path's key: for a key that should not be there.
func (v *validator) wrongKey(path, msg, cure string) { v.Fail(path, v.KeyOf(path), msg, cure) }

// written returns the first of the paths that is in the file, or the last one.
func (v *validator) written(paths ...string) string {
	for _, p := range paths {
		if _, ok := v.Place(p); ok {
			return p
		}
	}
	return paths[len(paths)-1]
}

// given returns the keys of a mapping that are written in the file.
func (v *validator) given(path string, keys ...string) (out []string) {
	for _, k := range keys {
		if _, ok := v.Place(decode.Join(path, k)); ok {
			out = append(out, k)
		}
	}
	return out
}

// sourcesNamed reports whether the names of the sources are known.
func (v *validator) sourcesNamed() bool {
	at, ok := v.Place("sources")
	return ok && at.Kind == tree.Mapping
}

// maxMicrobatch bounds the tokens of one microbatch: their positions in a tensor are int32.
const maxMicrobatch = math.MaxInt32

// maxWindow bounds the sequences of the steps that are packed together.
const maxWindow = 1 << 22

func (v *validator) checkSizes() {
	c := v.c
	v.inherit()
	v.checkStages()
	v.checkCarry()
	v.checkWindow()
	if !v.Sound("cap_slack", "layout") {
		return
	}
	num, den := c.CapSlack.Fraction()
	switch {
	case num < den:
		v.wrong("cap_slack", "cap_slack must be at least 1, not "+c.CapSlack.Text, "write 1, or a little more, as 1.1")
	case num > den && c.Layout != millrace.Varlen:
		v.wrong(
			"cap_slack", "cap_slack above 1 needs layout varlen",
			"write `layout: varlen`, or leave cap_slack out: packed rows have one length",
		)
	}
}

// checkCarry reports a number of waiting segments if no segment ever waits.
func (v *validator) checkCarry() {
	c := v.c
	waits := slices.ContainsFunc(c.AllStages(), func(s Stage) bool {
		return s.Packing == millrace.BestFit || s.Packing == millrace.Bucketed && !c.TokenRows()
	})
	if !v.Sound("carry", "packing", "bucket_rows", "stages") || c.Carry.Count == 0 || waits {
		return
	}
	switch {
	case c.isBucketed():
		rows := "bucket_rows tokens"
		if c.BucketRows == "" {
			rows += ", the default"
		}
		v.wrong(
			"carry", "carry has no effect with packing bucketed and "+rows,
			"leave carry out, or write `bucket_rows: constant`",
		)
	case len(c.Stages) == 0:
		v.wrong(
			"carry", "carry has no effect with packing "+string(c.Packing),
			"leave carry out, or write `packing: best_fit` or `packing: bucketed`",
		)
	}
}

// checkWindow checks window.
func (v *validator) checkWindow() {
	c := v.c
	most := c.GlobalBatchSize // of all stages
	for i := range c.Stages {
		most = max(most, c.Stages[i].GlobalBatchSize)
	}
	if v.Sound("window", "global_batch_size", "stages") && uint64(c.Window)*uint64(most) > maxWindow {
		v.wrong(
			"window",
			fmt.Sprintf("a window of %d steps has %d sequences", c.Window, uint64(c.Window)*uint64(most)),
			fmt.Sprintf(
				"write at most %d: window * global_batch_size must be at most %d", maxWindow/most, uint32(maxWindow),
			),
		)
	}
}

func (v *validator) checkCost() {
	m, c := v.c.Model, v.c.Cost
	if m != nil && c != nil {
		v.wrongKey(
			"cost", "`model` and `cost` exclude each other",
			"keep `model` to have the cost estimated, or `cost` with measured coefficients",
		)
	}
	if c != nil && v.Sound("cost") {
		v.checkFormulas()
	}
	if m != nil && v.Sound("model") {
		v.checkModel()
	}
}

// checkFormulas checks a given cost.
func (v *validator) checkFormulas() {
	c := v.c.Cost
	_, linear := v.Place("cost.linear")
	_, quadratic := v.Place("cost.quadratic")
	switch {
	case c.Backbone.Input != "" && (linear || quadratic):
		v.wrongKey(
			"cost.backbone", "`cost` has both a formula and coefficients",
			"keep `backbone`, or `linear` and `quadratic`",
		)
	case c.Backbone.Input == "" && !(linear && quadratic):
		v.wrongKey(
			"cost", "`cost` lacks the cost of tokens",
			"write `linear` and `quadratic`, as `{linear: 61000, quadratic: 1}`, or `backbone` with a formula",
		)
	case c.Backbone.Input == "patches":
		v.wrong(
			"cost.backbone", "backbone is weighed by tokens, not patches",
			"write a formula of tokens; they include the tokens of patches",
		)
	case c.Encoder.Input == "tokens":
		v.wrong("cost.encoder", "encoder is weighed by patches, not tokens", "write a formula of patches")
	case c.Linear == 0 && c.Quadratic == 0 && c.Backbone.Linear == 0 && c.Backbone.Quadratic == 0:
		v.wrong("cost", "`cost` is zero", "write at least one coefficient above 0, as `{linear: 61000, quadratic: 1}`")
	}
}

// checkModel checks the dimensions of a model against each other and fills in the derived ones.
func (v *validator) checkModel() {
	m := v.c.Model
	if m.KVHeads == 0 {
		m.KVHeads = m.Heads
	}
	if m.Heads%m.KVHeads != 0 {
		v.wrong(
			v.written("model.kv_heads", "model.heads"),
			fmt.Sprintf("%d heads do not divide by %d kv_heads", m.Heads, m.KVHeads),
			"each key and value head serves the same number of heads",
		)
	}
	switch {
	case m.MLA != nil && m.HeadDim > 0:
		v.wrongKey(
			"model.head_dim", "`mla` and `head_dim` exclude each other", "keep `mla`: it sets the width of a head",
		)
	case m.MLA == nil && m.HeadDim == 0 && m.Hidden%m.Heads != 0:
		v.wrong(
			"model.hidden", fmt.Sprintf("hidden %d does not divide by %d heads", m.Hidden, m.Heads),
			"write `head_dim:` as well",
		)
	case m.MLA == nil && m.HeadDim == 0:
		m.HeadDim = m.Hidden / m.Heads
	}
	switch {
	case m.WindowLayers > 0 && m.Window == 0:
		v.wrongKey(
			"model.window_layers", "`window_layers` without `window`",
			"write `window:`, the number of tokens that these layers see",
		)
	case m.WindowLayers > m.Layers:
		v.wrong(
			"model.window_layers", fmt.Sprintf("%d of %d layers cannot have windows", m.WindowLayers, m.Layers),
			fmt.Sprintf("write at most %d", m.Layers),
		)
	}
	switch {
	case m.Experts == 0 && m.ActiveExperts+m.SharedExperts > 0:
		v.wrongKey(
			v.written(
				"model.active_experts",
				"model.shared_experts",
			),
			"the model has active or shared experts, but no `experts`",
			"write `experts:`, the number of experts in a layer",
		)
	case m.Experts > 0 && m.ActiveExperts == 0:
		v.wrongKey(
			"model.experts", "`experts` without `active_experts`",
			"write `active_experts:`, the number of experts to which a token is routed",
		)
	case m.ActiveExperts > m.Experts:
		v.wrong(
			"model.active_experts", fmt.Sprintf("%d of %d experts cannot be active", m.ActiveExperts, m.Experts),
			fmt.Sprintf("write at most %d", m.Experts),
		)
	}
	if e := m.Encoder; e != nil && e.HeadDim == 0 {
		if e.Hidden%e.Heads != 0 {
			v.wrong(
				"model.encoder.hidden", fmt.Sprintf("hidden %d does not divide by %d heads", e.Hidden, e.Heads),
				"write `head_dim:` as well",
			)
			return
		}
		e.HeadDim = e.Hidden / e.Heads
	}
}

func (v *validator) checkStop() {
	if v.c.Stop == nil || !v.Sound("stop") {
		return
	}
	var given []string
	for _, key := range []string{"epochs", "steps", "tokens"} {
		if _, ok := v.Place("stop." + key); ok {
			given = append(given, key)
		}
	}
	switch {
	case len(given) == 0:
		v.wrongKey(
			"stop", "`stop` is empty",
			"write one of `epochs`, `steps` and `tokens`; leave `stop` out for an endless run",
		)
	case len(given) > 1:
		v.wrongKey(
			"stop."+given[1], fmt.Sprintf("`stop` has both %s and %s", tree.Quote(given[0]), tree.Quote(given[1])),
			"keep one of them",
		)
	}
}

func (v *validator) checkLimits() {
	l := &v.c.Limits
	for _, m := range []struct {
		key   string
		value value.Bytes
		least value.Bytes
	}{
		{"limits.loader_memory", l.LoaderMemory, minLoaderMemory},
		{"limits.sidecar_memory", l.SidecarMemory, minSidecarMemory},
		{"limits.sample_bytes", l.SampleBytes, 1},
	} {
		if v.Sound(m.key) && m.value < m.least {
			v.wrong(
				m.key, fmt.Sprintf("%s must be at least %s, not %s", decode.Leaf(m.key), m.least, m.value),
				"write "+m.least.String()+" or more",
			)
		}
	}
	if n := l.OpenFiles; v.Sound("limits.open_files") && n > 0 && n < minOpenFiles {
		v.wrong("limits.open_files", fmt.Sprintf("open_files must be 0 or at least %d, not %d", minOpenFiles, n),
			fmt.Sprintf("write %d or more, or leave it out", minOpenFiles))
	}
	if v.Sound("limits.sample_bytes") && l.SampleBytes > math.MaxInt32 {
		v.wrong(
			"limits.sample_bytes", "sample_bytes must be below 2GiB, not "+l.SampleBytes.String(),
			"write the size of the largest useful document",
		)
		return
	}
	if v.Sound("limits") && l.SampleBytes > l.LoaderMemory/2 {
		v.wrong(v.written("limits.sample_bytes", "limits.loader_memory"),
			fmt.Sprintf("sample_bytes %s is more than half of loader_memory %s", l.SampleBytes, l.LoaderMemory),
			fmt.Sprintf("write a loader_memory of at least %s, or a smaller sample_bytes", 2*l.SampleBytes))
	}
	v.checkCache()
	if num, den := v.c.Quarantine.Budget.Fraction(); v.Sound("quarantine") && num > den {
		v.wrong(
			"quarantine.budget", "budget must be a fraction from 0 to 1, not "+v.c.Quarantine.Budget.Text,
			"0.001 is one record in a thousand",
		)
	}
}

// checkCache checks the limits of the caches on a local disk.
func (v *validator) checkCache() {
	c := v.c.Cache
	if c == nil || !v.Sound("cache.tokens", "cache.files") {
		return
	}
	if c.Tokens == 0 && c.Files == 0 {
		v.wrong("cache", "`cache` keeps nothing: it has neither `tokens` nor `files`",
			"write the room that it may take on its disk, as `tokens: 200GiB`")
	}
	for _, limit := range []struct {
		name        string
		least, room value.Bytes
	}{{"tokens", minCache, c.Tokens}, {"files", minFileCache, c.Files}} {
		if _, written := v.Place("cache." + limit.name); written && limit.room < limit.least {
			v.wrong("cache."+limit.name,
				fmt.Sprintf("%s must be at least %s, not %s", limit.name, limit.least, limit.room),
				"write the room that the cache may take on its disk, as 200GiB")
		}
	}
}

// checkAdaptive checks the settings of a policy.
func (v *validator) checkAdaptive() {
	a := v.c.Adaptive
	if a == nil || !v.Sound("adaptive") {
		return
	}
	if _, schedule := v.Place("mixture.schedule"); schedule {
		v.wrongKey(
			"adaptive", "`adaptive` and `mixture.schedule` exclude each other",
			"write `mixture.weights`: the policy begins with them, and ado compares with them",
		)
	}
	n := uint64(len(v.c.Sources))
	if v.sourcesNamed() && n > 0 && a.Floor.Billionths()*n >= value.Billion {
		v.wrong(
			"adaptive.floor", fmt.Sprintf("a floor of %s for each of %d sources leaves nothing to decide", a.Floor, n),
			fmt.Sprintf("write less than 1/%d", n),
		)
	}
	if a.Smoothing.Billionths() >= value.Billion {
		v.wrong(
			"adaptive.smoothing",
			"with a smoothing of 1 the weights never change",
			"write less than 1, such as 0.9",
		)
	}
}

func (v *validator) checkTokenizer() {
	t := v.c.Tokenizer
	if t == nil || !v.Sound("tokenizer") {
		return
	}
	switch {
	case t.Name == "" && t.Path == "":
		v.wrong(
			"tokenizer.name", "`tokenizer` has neither `name` nor `path`",
			"write `name: gpt2`, or `path:` with a vocabulary file",
		)
	case t.Name != "" && t.Path != "":
		v.wrongKey("tokenizer.path", "`tokenizer` has both `name` and `path`", "keep one of them")
	case find.IsURL(t.Path):
		v.wrong("tokenizer.path", "`tokenizer.path` must be a file on this host, not "+tree.Quote(t.Path), hubCure)
	case t.Name != "" && t.Pattern != "":
		v.wrongKey("tokenizer.pattern", "`tokenizer` has both `name` and `pattern`",
			"leave `pattern` out: a built-in vocabulary has its own")
	}
}
