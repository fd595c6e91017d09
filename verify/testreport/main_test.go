package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/needs"
)

const events = `{"Action":"start","Package":"millrace/a"}
{"Action":"run","Package":"millrace/a","Test":"TestOK"}
{"Action":"output","Package":"millrace/a","Test":"TestOK","Output":"quiet\n"}
{"Action":"pass","Package":"millrace/a","Test":"TestOK","Elapsed":0.1}
{"Action":"run","Package":"millrace/a","Test":"TestParent"}
{"Action":"run","Package":"millrace/a","Test":"TestParent/one"}
{"Action":"run","Package":"millrace/a","Test":"TestParent/two"}
{"Action":"output","Package":"millrace/a","Test":"TestParent/two","Output":"    a_test.go:9: loud\n"}
{"Action":"pass","Package":"millrace/a","Test":"TestParent/one"}
{"Action":"fail","Package":"millrace/a","Test":"TestParent/two"}
{"Action":"fail","Package":"millrace/a","Test":"TestParent"}
{"Action":"run","Package":"millrace/a","Test":"TestSkip"}
{"Action":"output","Package":"millrace/a","Test":"TestSkip","Output":"    a_test.go:12: needs nft: no device\n"}
{"Action":"output","Package":"millrace/a","Test":"TestSkip","Output":"--- SKIP: TestSkip (0.00s)\n"}
{"Action":"skip","Package":"millrace/a","Test":"TestSkip"}
{"Action":"fail","Package":"millrace/a","Elapsed":7.25}
{"Action":"build-output","ImportPath":"millrace/b","Output":"b.go:3: undefined: x\n"}
{"Action":"build-fail","ImportPath":"millrace/b"}
{"Action":"fail","Package":"millrace/b","Elapsed":0,"FailedBuild":"millrace/b"}
{"Action":"skip","Package":"millrace/c","Elapsed":0}
`

func TestGoEvents(t *testing.T) {
	t.Setenv(needs.Hidden, "nft")
	var out strings.Builder
	r := &report{out: &out}
	if _, err := newGoReader("go", r).read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	if r.summary() {
		t.Error("the summary is content")
	}
	text := out.String()
	for _, want := range []string{
		"--- FAIL a.TestParent/two\n    a_test.go:9: loud\n", "--- FAIL b\nb.go:3: undefined: x\n", "FAIL   a  7.2 s\n",
		"packages of 5s and more:\n     7.2 s  a\n", "skipped:\n  a.TestSkip: a_test.go:12: needs nft: no device\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "quiet") {
		t.Error("output of a test that passed")
	}
	if !strings.HasSuffix(text, "\n2 passed, 2 failed, 1 skipped\n") {
		t.Errorf("totals:\n%s", text)
	}
}

func TestSteps(t *testing.T) {
	t.Setenv(needs.Hidden, "nft")
	dir := t.TempDir()
	junit := `<testsuites><testsuite time="1.5"><testcase classname="t" name="good"/>` +
		`<testcase classname="t" name="bad" time="7.5">` +
		`<failure>assert 1 == 2</failure></testcase></testsuite></testsuites>`
	file := filepath.Join(dir, "canned.xml")
	if err := os.WriteFile(file, []byte(junit), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		step, totals, shows string
	}{
		"check passes":         {"check:x=true", "1 passed, 0 failed, 0 skipped", ""},
		"check fails":          {"check:x=echo the reason; false", "0 passed, 1 failed, 0 skipped", "the reason"},
		"go that is not there": {"go:go=no-such-program", "0 passed, 1 failed, 0 skipped", "no-such-program"},
		"go that fails untold": {"go:go=echo odd; exit 3", "0 passed, 1 failed, 0 skipped", "odd"},
		"pytest": {"pytest:py=cp " + file + " $JUNIT; exit 1",
			"1 passed, 1 failed, 0 skipped", "assert 1 == 2"},
		"slow pytest": {"pytest:py=cp " + file + " $JUNIT", "1 passed, 1 failed, 0 skipped",
			"tests of 5s and more:\n     7.5 s  py:t.bad\n"},
		"pytest that never ran": {"pytest:py=echo no module named pytest; exit 1",
			"0 passed, 1 failed, 0 skipped", "no module"},
		"pytest without a test": {"pytest:py=echo '<testsuites/>' > $JUNIT",
			"0 passed, 1 failed, 0 skipped", "no tests ran"},
		"skip that may be": {"skip:arm64=needs nft: no qemu", "0 passed, 0 failed, 1 skipped",
			"arm64: needs nft: no qemu"},
		"skip that is not expected": {"skip:other=no reason", "0 passed, 1 failed, 1 skipped", "a reason names a need"},
	} {
		t.Run(name, func(t *testing.T) {
			steps, err := parseSteps([]string{c.step})
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			r := &report{out: &out}
			steps[0].run(r)
			content := r.summary()
			if text := out.String(); !strings.HasSuffix(text, "\n"+c.totals+"\n") || !strings.Contains(text, c.shows) {
				t.Errorf("want %q and %q in\n%s", c.totals, c.shows, text)
			}
			if content != strings.Contains(c.totals, " 0 failed") {
				t.Errorf("content: %v", content)
			}
		})
	}
	for _, bad := range []string{"check", "check:x", "chick:x=true", "x=true", "check&:x=true", "&:x=true"} {
		if _, err := parseSteps([]string{bad}); err == nil {
			t.Errorf("%q is a step", bad)
		}
	}
}

// TestStepsBesideEachOther: each of two steps waits for the other, so they end only if they run at the same time. The
// results of both count.
func TestStepsBesideEachOther(t *testing.T) {
	t.Setenv(needs.Hidden, "nft")
	dir := t.TempDir()
	meet := func(mine, other string) string {
		return "cd " + dir + "; touch " + mine + "; for i in {1..200}; do [[ -e " + other + " ]] && break; " +
			"sleep 0.1; done; [[ -e " + other + " ]]"
	}
	steps, err := parseSteps([]string{
		"check&:early=" + meet("a", "b"), "check&:wrong=echo the reason; false", "skip&:arm64=needs nft: no qemu",
		"check:late=" + meet("b", "a"),
	})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	r := &report{out: &out}
	runBeside(steps, r)
	if r.summary() {
		t.Error("the summary is content")
	}
	for _, want := range []string{
		"--- FAIL wrong\nthe reason\n", "arm64: needs nft: no qemu", "\n2 passed, 1 failed, 1 skipped\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, out.String())
		}
	}
}
