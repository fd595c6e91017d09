package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"millrace/app/config/identity"
)

func TestIdentityIgnoresWhatMayDiffer(t *testing.T) {
	want := parse(t, base).Identity(Facts{}).Fingerprint()
	for _, edit := range []string{
		"micro_batch_size: 8", "balance: none", "layout: varlen\ncap_slack: 1.5", "token_dtype: int32",
		"cost: {linear: 5, quadratic: 1}",
		"cost: {backbone: tokens, encoder: patches}", "distribute: {group: 2}",
		"layout: varlen\nsplit_documents: {above: mean}",
		"stop: {steps: 5}", "stop: {tokens: 5}", "limits: {loader_memory: 1GiB, sidecar_memory: 64MiB}",
		"index_dir: /x", "cache: {tokens: 1GiB, dir: /x}",
		"loaders: 3", "reliability: {shadows: 5}", "quarantine: {budget: 1}",
		"sources:\n  web: {path: [elsewhere/*.jsonl.zst], root: elsewhere}\n  code: {path: code/*.parquet}",
		// defaults written out
		"seed: 0", "tokenizer: {name: gpt2, add_bos: false, add_eos: true}", "packing: best_fit", "shuffle: global",
		"pad_multiple: 1", "window: 1", "carry: auto",
		"last_step: pad", "limits: {sample_bytes: 67108864}",
		"mixture: {unit: tokens, weights: {code: 4e-1, web: 0.60}}",
		"sources:\n  code: {path: code/*.parquet, format: parquet, text: text, on_exhausted: repeat}\n  web: {path: " +
			"web/*.jsonl}",
	} {
		if c := parse(t, change(edit+"\n")); c.Identity(Facts{}).Fingerprint() != want {
			old := parse(t, base).Identity(Facts{})
			t.Errorf("%s\nchanges the identity: %q", edit, identity.Diff(old, c.Identity(Facts{})))
		}
	}
}

func TestIdentityNamesWhatChanged(t *testing.T) {
	old := parse(t, base).Identity(Facts{})
	for edit, want := range map[string]string{
		"seed: 1":                                "seed: 0 -> 1",
		"tokenizer: {name: cl100k_base}":         "tokenizer: gpt2 -> cl100k_base",
		"tokenizer: {name: gpt2, add_bos: true}": "tokenizer.add_bos: false -> true",
		"sequence_length: 1024":                  "sequence_length: 2048 -> 1024",
		"global_batch_size: 1024":                "global_batch_size: 512 -> 1024",
		"packing: pad":                           "packing: best_fit -> pad",
		"shuffle: none":                          "shuffle: global -> none",
		"rampup_batch_size: {start: 8, increment: 8, samples: 100}": "rampup_batch_size: added (8 by 8 over 100)",
		"stages: [{from_tokens: 500, packing: pad}]":                "stages[0]: added (tokens 500: 512 x 2048 pad)",
		"pad_multiple: 8":              "pad_multiple: 1 -> 8",
		"window: 4":                    "window: 1 -> 4",
		"carry: 64":                    "carry: auto -> 64",
		"last_step: drop":              "last_step: pad -> drop",
		"limits: {sample_bytes: 1MiB}": "limits.sample_bytes: 67108864 -> 1048576",
		"mixture: {weights: {web: 0.5, code: 0.4}}":                "mixture.weights.web: 0.6 -> 0.5",
		"mixture: {unit: samples, weights: {web: 0.6, code: 0.4}}": "mixture.unit: tokens -> samples",
		"stop: {epochs: 1}": "stop.epochs: 0 -> 1\n" +
			"sources.code: parquet text=text repeat -> parquet text=text renormalize\nsources.web: jsonl text=text " +
			"repeat -> jsonl text=text renormalize",
		"mixture: {schedule: [{from_step: 0, weights: {web: 0.6, code: 0.4}}]}": "" +
			"mixture.schedule[0]: added (step 0: code 0.4, web 0.6)\n" +
			"mixture.weights.code: removed (it was 0.4)\nmixture.weights.web: removed (it was 0.6)",
		"sources:\n  web: {path: web/*.jsonl}\n  code: {path: x.parquet, text: body, on_exhausted: stop, " +
			"max_epochs: 2}": "sources.code: parquet text=text repeat -> parquet text=body stop max_epochs=2",
	} {
		now := parse(t, change(edit+"\n")).Identity(Facts{})
		if got := strings.Join(identity.Diff(old, now), "\n"); got != want {
			t.Errorf("%s\ngot  %q\nwant %q", edit, got, want)
		}
		if got := strings.Join(identity.Diff(throughJSON(t, old), now), "\n"); got != want {
			t.Errorf("%s through JSON\ngot  %q\nwant %q", edit, got, want)
		}
	}
}

func TestTokenizerIsItsFingerprint(t *testing.T) {
	a, b := parse(t, base), parse(t, change("tokenizer: {path: moved/gpt2.tiktoken}\n"))
	f1, f2 := Facts{Vocabulary: "f1"}, Facts{Vocabulary: "f2"}
	if d := identity.Diff(a.Identity(f1), b.Identity(f1)); d != nil {
		t.Errorf("one vocabulary under two names: %q", d)
	}
	if d := identity.Diff(throughJSON(t, a.Identity(f1)), b.Identity(f2)); len(d) != 1 ||
		d[0] != "tokenizer: gpt2 (f1) -> moved/gpt2.tiktoken (f2)" {
		t.Errorf("%q", d)
	}
}

func throughJSON(t *testing.T, id identity.Identity) identity.Identity {
	t.Helper()
	b, err := json.Marshal(id)
	if err != nil {
		t.Fatal(err)
	}
	var out identity.Identity
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	if out.Fingerprint() != id.Fingerprint() {
		t.Fatalf("fingerprint changed through JSON:\n%s", b)
	}
	if again, err := json.Marshal(out); err != nil || string(again) != string(b) {
		t.Fatalf("JSON changed through JSON: %v\n%s\n%s", err, b, again)
	}
	return out
}

// large returns a file of many sources with long names, with weights or with milestones.
func large(sources, nameLength, milestones int, weight string) string {
	var b, w strings.Builder
	b.WriteString(
		"version: 1\nseed: 18446744073709551615\nsequence_length: 2048\nglobal_batch_size: 64\ntokenizer: {name: " +
			"gpt2}\nsources:\n",
	)
	for i := range sources {
		name := fmt.Sprintf("s%04d%s", i, strings.Repeat("x", nameLength-5))
		fmt.Fprintf(&b, "  %s: {path: %s/*.jsonl, text: field%d}\n", name, name, i%5)
		fmt.Fprintf(&w, "%s: %s, ", name, weight)
	}
	if milestones == 0 {
		fmt.Fprintf(&b, "mixture: {weights: {%s}}\n", w.String())
		return b.String()
	}
	b.WriteString("mixture:\n  schedule:\n")
	for i := range milestones {
		fmt.Fprintf(&b, "  - {from_step: %d, weights: {%s}}\n", i, w.String())
	}
	return b.String()
}

func TestCompactFormIsSmallAndTellsChanges(t *testing.T) {
	for _, x := range []struct{ sources, name, milestones int }{{64, 12, 0}, {64, 24, 0}, {64, 100, 0}, {64, 12, 5}, {8,
		12, 60}, {500, 30, 3}, {500, 30, 0}} {
		text := large(x.sources, x.name, x.milestones, "0.123456789")
		id := parse(t, text).Identity(Facts{})
		b, err := json.Marshal(id)
		if err != nil || len(b) > 5<<10 {
			t.Errorf("%+v: %d bytes, %v", x, len(b), err)
		}
		t.Logf("%+v: %d bytes", x, len(b))
		old := throughJSON(t, id)
		if d := identity.Diff(old, id); d != nil {
			t.Errorf("%+v: differs from itself: %q", x, d)
		}
		other := parse(t, strings.Replace(text, "0.123456789", "0.5", 1)).Identity(Facts{})
		if d := identity.Diff(old, other); len(d) != 1 || !strings.HasPrefix(d[0], "mixture.") {
			t.Errorf("%+v: one weight changed: %q", x, d)
		}
		other = parse(t, strings.Replace(text, "text: field3", "text: other", 1)).Identity(Facts{})
		if d := identity.Diff(other, old); len(d) != 1 || !strings.HasPrefix(d[0], "sources") {
			t.Errorf("%+v: one source changed: %q", x, d)
		}
	}
}

func TestIdentityRefusesForeignJSON(t *testing.T) {
	for _, s := range []string{"5", "{}", `{"fingerprint":"zz"}`,
		`{"fingerprint":"00000000000000000000000000000001","values":[["a"]]}`} {
		var id identity.Identity
		if err := json.Unmarshal([]byte(s), &id); err == nil {
			t.Errorf("%s read as %+v", s, id)
		}
	}
}

func TestResolvedRoundTrip(t *testing.T) {
	for _, f := range valid(t) {
		c, err := Parse(f, read(t, f), "/data")
		if err != nil {
			t.Fatal(err)
		}
		b, err := c.MarshalResolved()
		if err != nil {
			t.Fatal(err)
		}
		again, err := UnmarshalResolved(b)
		if err != nil {
			t.Fatal(err)
		}
		c.doc, c.Streams = nil, nil // each stream has a resolved configuration of its own
		if again.Streams = nil; !reflect.DeepEqual(c, again) {
			t.Errorf("%s: got %+v, want %+v", f, again, c)
		}
		if _, err := again.Topology(7); f == "testdata/valid/contract.yaml" &&
			(err == nil || !strings.HasPrefix(err.Error(), f+":1:1: ")) {
			t.Errorf("topology of a resolved configuration: %v", err)
		}
	}
	if _, err := UnmarshalResolved([]byte(`{"Nonsense": 1}`)); err == nil {
		t.Error("unknown field accepted")
	}
}

// TestRunsFromBeforeAKeyGoOn: an identity without the entry of a key agrees with the values under which its run would
// go on as before.
func TestRunsFromBeforeAKeyGoOn(t *testing.T) {
	before := parse(t, base).Identity(Facts{})
	before.Entries = slices.DeleteFunc(before.Entries, func(e identity.Entry) bool { return e.Name == "carry" })
	text, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	var saved identity.Identity
	if err := json.Unmarshal(text, &saved); err != nil {
		t.Fatal(err)
	}
	for edit, want := range map[string]string{
		"carry: auto": "", "carry: 0": "", "carry: 64": "carry: added (64)",
		"carry: auto\nseed: 7": "seed: 0 -> 7",
	} {
		for _, old := range []identity.Identity{before, saved} {
			now := parse(t, change(edit+"\n")).Identity(Facts{})
			if got := strings.Join(identity.Diff(old, now), "; "); got != want {
				t.Errorf("%s: %q, want %q", edit, got, want)
			}
		}
	}
}

// TestBucketedRunsFromBeforeKeepTheirRows: a bucketed run of an earlier program lacks `bucket_rows` and agrees with
// constant rows alone. Its defaults have them.
func TestBucketedRunsFromBeforeKeepTheirRows(t *testing.T) {
	earlier := parse(t, change("packing: bucketed\n")).Earlier()
	before := earlier.Identity(Facts{})
	before.Entries = slices.DeleteFunc(before.Entries, func(e identity.Entry) bool { return e.Name == "bucket_rows" })
	if before.Value("window") != "1" || len(identity.Diff(before, earlier.Identity(Facts{}))) > 0 {
		t.Errorf("a run of before has changed: %q", identity.Diff(before, earlier.Identity(Facts{})))
	}
	for edit, want := range map[string]string{
		"bucket_rows: constant": "",
		"bucket_rows: tokens":   "bucket_rows: added (tokens); window: 1 -> auto",
		"window: 1":             "bucket_rows: added (tokens)",
	} {
		now := parse(t, change("packing: bucketed\n"+edit+"\n"))
		if got := strings.Join(identity.Diff(before, now.Identity(Facts{})), "; "); got != want {
			t.Errorf("%s: %q, want %q", edit, got, want)
		}
	}
	for _, edit := range []string{"packing: pad\nbucket_rows: constant", "packing: pad\nbucket_rows: tokens"} {
		old := parse(t, change("packing: pad\n")).Identity(Facts{})
		if got := identity.Diff(old, parse(t, change(edit)).Identity(Facts{})); len(got) > 0 {
			t.Errorf("%q changes a run without bucketed steps: %q", edit, got)
		}
	}
}
