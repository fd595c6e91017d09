// Package needs names the programs and abilities that some tests need and a machine may lack. A test that lacks one
// skips with a reason that begins with "needs NAME:". `make test` accepts no other reason, and none whose need is
// there.
package needs

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

//go:embed needs.txt
var text string

// Hidden is the environment variable that lists needs which tests must take for missing.
const Hidden = "MILLRACE_WITHOUT"

// A Need is one program or ability.
type Need struct {
	Name  string
	Cure  string // how to get it
	Probe string // a command of bash that succeeds if it is there
}

// Table returns all needs by name.
func Table() map[string]Need {
	out := map[string]Need{}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "\t") {
			continue
		}
		if name, cure, ok := strings.Cut(line, ": "); ok {
			out[name] = Need{name, cure, strings.TrimSpace(lines[i+1])}
		}
	}
	return out
}

// IsHere reports whether the need is there and not hidden.
func (n Need) IsHere() bool {
	for name := range strings.FieldsSeq(os.Getenv(Hidden)) {
		if name == n.Name {
			return false
		}
	}
	return exec.Command("bash", "-c", n.Probe).Run() == nil
}

// Reason returns the words of a test that skips because the need is missing.
func (n Need) Reason() string { return "needs " + n.Name + ": " + n.Cure }

var reason = regexp.MustCompile(`(?:^| )needs (\S+): `)

// Refuse returns why a test must not skip for a reason, or "" if it may.
func Refuse(words string) string {
	m := reason.FindStringSubmatch(words)
	if m == nil {
		return fmt.Sprintf("it was skipped because %q: a reason names a need of internal/needs/needs.txt", words)
	}
	n, ok := Table()[m[1]]
	if !ok {
		return fmt.Sprintf("it was skipped because it needs %s, which is not in internal/needs/needs.txt", m[1])
	}
	if n.IsHere() {
		return fmt.Sprintf("it was skipped because it needs %s, which is there", n.Name)
	}
	return ""
}

// A Test is a *testing.T.
type Test interface {
	Helper()
	Skip(args ...any)
}

// Require skips the test if a need is missing. It panics on a name that the table lacks.
func Require(t Test, names ...string) {
	t.Helper()
	table := Table()
	for _, name := range names {
		n, ok := table[name]
		if !ok {
			panic("internal/needs/needs.txt has no " + name)
		}
		if !n.IsHere() {
			t.Skip(n.Reason())
		}
	}
}
