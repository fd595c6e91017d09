package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// notOfExample lists files that the walks of CONTRIBUTING.md name for every change of their kind. Their text need not
// have the walk's example.
var notOfExample = map[string]string{
	"sources/format.go":         "the contract of all formats",
	"app/config/source.go":      "keys of a source",
	"app/config/identity.go":    "keys that decide the content of steps",
	"app/config/check.go":       "checks that no bound expresses",
	"app/setup/planning.go":     "it passes all rules on as they are",
	"app/config/keys_test.go":   "keys whose edit does not follow from their type",
	"app/config/hints.go":       "examples that do not follow from the type",
	"app/config/resume/keys.go": "rules that struct tags name",

	"orchestrator/planner/place/options.go": "rules of placing",
	"orchestrator/planner/pack/pack.go":     "rules of packing",
	"orchestrator/planner/cost/cost.go":     "prices",
}

var (
	walkExample = regexp.MustCompile("The example is `(?:ramp: )?([\\w.]+)`")
	walkFile    = regexp.MustCompile("`([\\w/.-]+\\.(?:go|json))`")
	walkPackage = regexp.MustCompile(`\./[\w/]+`)
	walkTest    = regexp.MustCompile(`\bTest[A-Z]\w+`)
	walkTarget  = regexp.MustCompile(`\bmake ([a-z][a-z-]*)`)
)

// TestWalksLeadSomewhere follows the walks of CONTRIBUTING.md: their files have the walk's example, and their commands
// name packages, tests and targets that exist. TestCitationsExist follows the links.
func TestWalksLeadSomewhere(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	tests := testNames(t)
	for _, m := range walkTest.FindAllString(page, -1) {
		if !strings.Contains(tests, "func "+m) {
			t.Errorf("CONTRIBUTING.md: there is no %s", m)
		}
	}
	makefile := strings.Join(readLines(t, "Makefile"), "\n")
	for _, m := range walkTarget.FindAllStringSubmatch(page, -1) {
		if !strings.Contains(makefile, "\n"+m[1]+":") {
			t.Errorf("CONTRIBUTING.md: the Makefile has no target %s", m[1])
		}
	}
	for _, dir := range walkPackage.FindAllString(page, -1) {
		if dir == "./millrace" {
			continue // the built program
		}
		if _, err := os.Stat(filepath.Join(root, dir)); err != nil {
			t.Errorf("CONTRIBUTING.md: %v", err)
		}
	}
	walks := 0
	for _, section := range strings.Split(page, "\n## ") {
		if m := walkExample.FindStringSubmatch(section); m != nil {
			walks++
			followWalk(t, section, m[1])
		}
	}
	if walks != 3 {
		t.Errorf("CONTRIBUTING.md has %d walks with an example, want those for a key, a format and a rule", walks)
	}
}

// followWalk looks for the example in each file that a walk names.
func followWalk(t *testing.T, section, example string) {
	title, _, _ := strings.Cut(section, "\n")
	word := example[strings.LastIndexByte(example, '.')+1:]
	files := 0
	for _, m := range walkFile.FindAllStringSubmatch(section, -1) {
		name := m[1]
		if notOfExample[name] != "" || !strings.Contains(name, "/") {
			continue
		}
		files++
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Errorf("%s: %v", title, err)
		} else if !strings.Contains(plainWord(string(b)), plainWord(word)) {
			t.Errorf("%s: %s does not have %s: the example of the walk is not there", title, name, word)
		}
	}
	if files < 2 {
		t.Errorf("%s: the walk names %d files", title, files)
	}
}

// plainWord drops what differs between a key of a file and a name in Go.
func plainWord(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }

// testNames returns the declarations of all tests, a line each.
func testNames(t *testing.T) string {
	var b strings.Builder
	for _, name := range written(t, "_test.go") {
		for _, line := range readLines(t, name) {
			if strings.HasPrefix(line, "func Test") {
				b.WriteString(line + "\n")
			}
		}
	}
	return b.String()
}
