package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"millrace"
	"millrace/app/config/decode"
	"millrace/app/config/identity"
	"millrace/app/config/tree"
	"millrace/app/config/value"
	"millrace/sources/format/registry"
)

func valid(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, dir := range []string{"testdata/valid", "../../examples", "../../examples/strategies"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil || len(files) < 3 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		all = append(all, files...)
	}
	return all
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func parse(t *testing.T, content string) *Config {
	t.Helper()
	c, err := Parse("mixture.yaml", []byte(content), "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestValidFilesParse(t *testing.T) {
	for _, f := range valid(t) {
		if _, err := Parse(f, read(t, f), ""); err != nil {
			t.Errorf("%v", err)
		}
	}
}

func TestValues(t *testing.T) {
	c := parse(t, string(read(t, "testdata/valid/everything.yaml")))
	want := Config{
		Version: 1, Seed: 7, Tokenizer: &Tokenizer{Name: "cl100k_base", AddBOS: true}, SequenceLength: 4096,
		GlobalBatchSize: 96, MicroBatchSize: 2,
		Packing: millrace.Pad, PadMultiple: 16, Carry: value.Carry{IsAuto: true}, Window: 4,
		CapSlack: value.Decimal{Text: "1.25"},
		Layout:   millrace.Varlen, Balance: millrace.BalanceNone, Shuffle: millrace.Blocks,
		TokenDtype: millrace.Int32, Cost: &Cost{Linear: 61000, Quadratic: 1}, Adaptive: &Adaptive{policyADO, 100, 2000,
			value.Decimal{Text: "0.02"}, value.Decimal{Text: "0.5"}}, Refit: &Refit{50},
		Parallelism: Parallelism{
			2,
			4,
			3,
		}, CPLocal: 100, Broadcast: []Axis{AxisTP, AxisPP}, Stop: &Stop{Tokens: 1000000},
		MiddleStages: "whole", LastStep: millrace.DropLast,
		Mixture: Mixture{Unit: millrace.UnitSamples, Weights: Weights{Given: []Weight{{"b",
			value.Ratio{Text: "0"}}, {"v1.5", value.Ratio{Text: ".5"}}}}},
		Sources: Sources{
			{
				Name:    "b",
				Format:  registry.Parquet,
				Path:    Patterns{"b/"},
				Text:    "text",
				Missing: "quarantine",
				Role:    "role", Content: "content", TrainOn: "assistant", TooLong: "split",
				OnExhausted: millrace.Repeat,
			},
			{
				Name:   "v1.5",
				Format: registry.JSONL,
				Path:   Patterns{"data/{train,extra}/*.ndjson.gz"},
				Root:   "data",
				Text:   "meta.body", Missing: "quarantine",
				Role: "role", Content: "content", TrainOn: "assistant", TooLong: "split",
				OnExhausted: millrace.FailRun,
				MaxEpochs:   4,
			},
		},
		Limits: Limits{LoaderMemory: 1536 << 20, SidecarMemory: 256e6, SampleBytes: 1 << 20,
			RunwaySeconds: 60},
		Quarantine: Quarantine{
			Budget: value.Decimal{Text: "0.01"},
		}, IndexDir: "/var/cache/millrace", Verify: "files",
		Cache: &Cache{Tokens: 200 << 30, Dir: "/local/cache"}, Loaders: value.Loaders{Count: 3},
		Reliability: Reliability{2}, File: "mixture.yaml",
	}
	c.doc = nil
	plainDefaults(reflect.ValueOf(&want.Limits).Elem())
	for _, d := range differences("", reflect.ValueOf(*c), reflect.ValueOf(want)) {
		t.Error(d)
	}
	if shape := c.Shape(); shape.CapTokens != 2*4096*5/4 || shape.MicroBatch != 2 || shape.CP != 4 || !shape.Local {
		t.Errorf("shape %+v", shape)
	}
}

// plainDefaults gives the numbers and sizes of a struct that are 0 the defaults of their tags. So a new key needs no
// line in the tests of whole files.
func plainDefaults(of reflect.Value) {
	for i := range of.NumField() {
		f := of.Field(i)
		_, initial, found := strings.Cut(of.Type().Field(i).Tag.Get("jsonschema"), "default=")
		if initial, _, _ = strings.Cut(initial, ","); !found || !f.IsZero() {
			continue
		}
		if x, ok := f.Addr().Interface().(decode.Literal); ok {
			x.SetText(initial, tree.Plain)
		} else if n, err := strconv.ParseUint(initial, 10, 64); err == nil && f.CanUint() {
			f.SetUint(n)
		}
	}
}

func TestDefaults(t *testing.T) {
	c := parse(t, string(read(t, "testdata/valid/least.yaml")))
	want := Config{
		Version: 1, SequenceLength: 8, GlobalBatchSize: 1, MicroBatchSize: 1, Packing: millrace.BestFit, PadMultiple: 1,
		Carry: value.Carry{IsAuto: true}, CapSlack: value.Decimal{Text: "1"},
		Layout: millrace.Packed, Balance: millrace.BalanceFSDP, Shuffle: millrace.Global, TokenDtype: millrace.Int64,
		Parallelism:  Parallelism{1, 1, 1},
		MiddleStages: "whole", LastStep: millrace.PadLast, Mixture: Mixture{Unit: millrace.UnitTokens,
			Weights: Weights{Given: []Weight{{"only", value.Ratio{Text: "1"}}}}},
		Sources: Sources{
			{
				Name:    "only",
				Format:  registry.Megatron,
				Path:    Patterns{"tokens.bin"},
				Text:    "text",
				Missing: "quarantine",
				Role:    "role", Content: "content", TrainOn: "assistant", TooLong: "split",
				OnExhausted: millrace.Repeat,
			},
		},
		Limits: Limits{LoaderMemory: 512 << 20, SidecarMemory: 512 << 20, SampleBytes: 64 << 20,
			RunwaySeconds: 60},
		Quarantine: Quarantine{
			Budget: value.Decimal{Text: "0.001"},
		}, IndexDir: ".millrace/", Verify: "tokens", Reliability: Reliability{1}, File: "mixture.yaml",
	}
	c.doc = nil
	plainDefaults(reflect.ValueOf(&want.Limits).Elem())
	for _, d := range differences("", reflect.ValueOf(*c), reflect.ValueOf(want)) {
		t.Error(d)
	}
	if tok := parse(t, change("seed: 0\n")).Tokenizer; tok.AddBOS || !tok.AddEOS {
		t.Errorf("tokenizer defaults: %+v", *tok)
	}
	if k := c.Mixture.Milestones(); len(k) != 1 || k[0].Ramp != RampNone || k[0].Over() != 0 {
		t.Errorf("weights as a schedule: %+v", k)
	}
	m := parse(t, change("model: {layers: 2, hidden: 64, heads: 4, ffn: 8, vocab: 9}\n")).Model
	if m.KVHeads != 4 || m.HeadDim != 16 {
		t.Errorf("model defaults: %+v", *m)
	}
}

func TestEpochsDecideWhatExhaustionMeans(t *testing.T) {
	c := parse(
		t,
		change(
			"stop: {epochs: 2}\nsources:\n  web: {path: a.jsonl, max_epochs: 5}\n  code: {path: b.parquet, "+
				"on_exhausted: stop}\n",
		),
	)
	web, _ := c.Source("web")
	code, ok := c.Source("code")
	if web.OnExhausted != millrace.Renormalize || code.OnExhausted != millrace.StopRun || !ok || c.Passes(web) != 2 {
		t.Errorf("web %+v, code %+v", web, code)
	}
	if _, ok := c.Source("books"); ok {
		t.Error("found a source that is not there")
	}
	c = parse(
		t,
		change(
			"sources:\n  web: {path: a.jsonl, max_epochs: 5, on_exhausted: renormalize}\n  code: {path: b.parquet}\n",
		),
	)
	web, _ = c.Source("web")
	code, _ = c.Source("code")
	if c.Passes(web) != 5 || c.Passes(code) != 0 || code.OnExhausted != millrace.Repeat {
		t.Errorf("web %+v, code %+v", web, code)
	}
	// max_epochs is a bound, with and without on_exhausted.
	for _, said := range []string{"", ", on_exhausted: repeat"} {
		c = parse(t, change("sources:\n  web: {path: a.jsonl, max_epochs: 2"+said+"}\n  code: {path: b.parquet}\n"))
		if web, _ = c.Source("web"); c.Passes(web) != 2 || web.OnExhausted != millrace.Renormalize {
			t.Errorf("max_epochs%s: %+v", said, web)
		}
	}
}

func TestExtremes(t *testing.T) {
	whole := func(start, repeat string) string {
		return start + strings.Repeat(repeat, (tree.MaxFile-len(start))/len(repeat))
	}
	for _, content := range []string{
		// input that takes the YAML library minutes or its stack
		whole("", "<<"), whole("a: [", "- "), whole("a: |\n", " x\n"), whole("", "["), whole("", "{a: ["), whole("",
			"- "), whole("", "a: "), whole("", "a: {"), whole("", "k: v\n"),
		"", " ", "\n\n", "\ufeff", strings.Repeat("#", tree.MaxFile+1), "a: [" + strings.Repeat("1, ", 20_000) + "1]",
	} {
		var e *tree.Error
		_, err := Parse("m.yaml", []byte(content), "")
		if !errors.As(err, &e) || e.Line < 1 || e.Column < 1 || !errors.Is(err, millrace.ErrInvalid) {
			t.Errorf("%.20q: %v", content, err)
		}
	}
	content := change("") + strings.Repeat("# comment\n", (tree.MaxFile-len(base))/len("# comment\n"))
	parse(t, content)
}

func TestUnixAndWindowsLinesReadTheSame(t *testing.T) {
	unix := string(read(t, "testdata/valid/contract.yaml"))
	a, b := parse(t, unix), parse(t, "\ufeff"+strings.ReplaceAll(unix, "\n", "\r\n"))
	a.doc, b.doc = nil, nil
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%+v\n%+v", a, b)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "m.yaml")
	if err := os.WriteFile(file, []byte(base), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if c.Base != dir || c.IndexPath() != filepath.Join(dir, ".millrace") || c.Abs("s3://b/x") != "s3://b/x" ||
		c.Abs("/x") != "/x" {
		t.Errorf("base %s, index %s", c.Base, c.IndexPath())
	}
	err = c.ErrorAt("sources.web.path", "no such file", "write one that is there")
	if want := file + ":6:15: no such file\n    6 |   web: {path: web/*.jsonl}\n      |               ^^^^^^^^^^^\n " +
		" write one that is there"; err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	for _, path := range []string{dir, filepath.Join(dir, "none.yaml")} {
		if _, err := Load(path); !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestDetect finds formats by the files on disk if the pattern does not tell.
func TestDetect(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"web/a/x.jsonl.zst", "web/README.md", "code/a.parquet", "both/a.parquet", "both/b.jsonl",
		"books/corpus.bin", "books/corpus.idx", "none/x.odd"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct{ path, want string }{
		{"web", "jsonl"}, {"web/**", "jsonl"}, {"code/", "parquet"}, {"code/*", "parquet"}, {"books/corpus",
			"megatron"}, {"books", "megatron"},
		{"{web,code}/*.ndjson.gz", "jsonl"}, {"x/*.{jsonl,jsonl.gz,ndjson.zst}", "jsonl"}, {"x/*.jsonl*", "jsonl"},
		{"X.PARQUET", "parquet"},
		{"https://h/x.jsonl.gz", "jsonl"}, {"https://h/x", ""}, {"both", ""}, {"none", ""}, {"nowhere", ""},
		{"x.{jsonl,parquet}", ""}, {"x.json.gz", "jsonl"}, {"x.jsonl.xz", "jsonl"}, {"x.jsonl.br", ""}, {".", ""},
	} {
		c, err := Parse(
			"m.yaml", []byte(change("sources: {web: {path: \""+x.path+"\"}, code: {path: b.parquet}}\n")), dir,
		)
		if x.want == "" {
			if err == nil {
				t.Errorf("%s: found %s", x.path, c.Sources[1].Format)
			}
			continue
		}
		if err != nil {
			t.Errorf("%v", err)
		} else if web, _ := c.Source("web"); string(web.Format) != x.want {
			t.Errorf("%s: %s, want %s", x.path, web.Format, x.want)
		}
	}
}

// TestFormatAliases: another word for a format gives the source of its name.
func TestFormatAliases(t *testing.T) {
	for alias, name := range registry.Name("").Aliases() {
		keys := "}"
		if name == registry.ArrayRecord {
			keys = ", record: text}"
		}
		of := func(word string) *Config {
			return parse(t, change("sources:\n  web: {path: x, format: "+word+keys+"\n  code: {path: b.parquet}\n"))
		}
		got, want := of(alias), of(name)
		if !reflect.DeepEqual(got.Sources, want.Sources) || got.Sources[1].Format != registry.Name(name) {
			t.Errorf("format %s: %+v, want %+v", alias, got.Sources, want.Sources)
		}
		if d := identity.Diff(got.Identity(Facts{}), want.Identity(Facts{})); d != nil {
			t.Errorf("format %s: the identity has other %v", alias, d)
		}
	}
}

// FuzzParse: no input panics, and every mistake has a place in the file, a message on one line and wraps ErrInvalid.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/valid/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	for _, s := range []string{base, "a: [", "'", "\"", "a: |\n", "? [a]\n: b", "{a: {b: [}]", "-\n-\n", "a: !<x>",
		"\ufeff", "\xff", "a:\n\tb", "sources: {a: &x {}}", "mixture:\n  schedule:\n  - {}\n", "- - -",
		"sources: {\"\": 1}", "a: \"\\x", "%", "--- ---"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, content []byte) { checkParse(t, content) })
}

// TestFragments combines pieces of mixture files and of YAML. That reaches more code than mutated bytes.
func TestFragments(t *testing.T) {
	pieces := []string{
		"version: 1\n", "sequence_length: 8\n", "global_batch_size: 8\n", "mixture:", "sources:", "weights:",
		"schedule:", "from_step: ", "ramp: linear", "over_steps: ", "path: ", "a.bin", "web", "web: ", "stop: ",
		"epochs: ", "limits: ", "model: ", "\n", "\n  ", "\n    ", "\n  - ", "{", "}", "[", "]", ", ", ": ", "1", "0.5",
		"-1", ".nan", "null", "true", "\"", "'", "x", "#", " # c", "&a ", "*a", "<<: ", "!t ", "|", ">-", "---\n",
		"...", "? ", "\t", "\r\n", "日本", "\xff", "%",
	}
	rapid.Check(t, func(t *rapid.T) {
		checkParse(t, []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 40).Draw(t, "pieces"), "")))
	})
}

// fataler is the part of testing.T that the checks need.
type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func checkParse(t fataler, content []byte) {
	t.Helper()
	c, err := Parse("m.yaml", content, "")
	if err == nil {
		checkAccepted(t, c)
		return
	}
	var all tree.Errors
	if !errors.As(err, &all) || len(all) == 0 || !errors.Is(err, millrace.ErrInvalid) {
		t.Fatalf("%T %v", err, err)
	}
	lines := strings.Split(
		strings.TrimSuffix(strings.ReplaceAll(strings.TrimPrefix(string(content), "\ufeff"), "\r\n", "\n"), "\n"), "\n",
	)
	for _, e := range all {
		if e.Line < 1 || e.Line > len(lines) || e.Column < 1 || e.Column > len([]rune(lines[e.Line-1]))+1 ||
			e.Msg == "" ||
			strings.Contains(e.Msg+e.Cure, "\n") {
			t.Fatalf("bad place or message: %+v", e)
		}
	}
}

// namedIn returns the sources of a tree of weights, and whether one of them may have weight.
func namedIn(c *Config, w Weights, groups Groups) (named []string, weighs bool) {
	if w.Derived != nil {
		return slices.Clone(w.Derived.Members(c.Sources)), true
	}
	for _, x := range w.Given {
		named, weighs = append(named, x.Source), weighs || !x.Value.IsZero()
	}
	for _, g := range groups {
		inner, some := namedIn(c, g.Weights, g.Groups)
		named, weighs = append(named, inner...), weighs || some && !g.Weight.IsZero()
	}
	return named, weighs
}

// checkAccepted checks the properties of a Config on which other packages rely.
func checkAccepted(t fataler, c *Config) {
	t.Helper()
	if len(c.Sources) == 0 {
		t.Fatalf("accepted %+v", c)
	}
	for _, s := range c.AllStages() {
		if s.GlobalBatchSize%s.MicroBatchSize != 0 || s.SequenceLength == 0 || s.SequenceLength%c.PadMultiple != 0 ||
			s.Packing == "" ||
			c.capTokens(&s) == 0 {
			t.Fatalf("accepted the stage %+v", s)
		}
	}
	for _, k := range c.Mixture.Milestones() {
		named, weighs := namedIn(c, k.Weights, k.Groups)
		if slices.Sort(named); !slices.Equal(named, c.Sources.Names()) || !weighs {
			t.Fatalf("weights of %v, of sources %v, positive: %v", named, c.Sources.Names(), weighs)
		}
	}
	b, err := c.MarshalResolved()
	if err != nil {
		t.Fatal(err)
	}
	again, err := UnmarshalResolved(b)
	if err != nil || again.Identity(Facts{}).Fingerprint() != c.Identity(Facts{}).Fingerprint() {
		t.Fatalf("resolved form differs: %v\n%s", err, b)
	}
}
