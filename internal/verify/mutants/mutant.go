// Command mutants checks the checkers: each patch in its folder breaks the product in one place, and the simulation, or the checker of histories
// over real processes, has to notice. A mutant that nobody notices is a hole in them.
//
//	go run ./internal/verify/mutants [-only name,name] [-seeds 1000] [-faults 150]
//
// A patch that does not fit the product's code any more is an error: it has to be written anew.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The judges.
const (
	bySim   = "sim"   // seeds of internal/verify/sim
	byChaos = "chaos" // runs of e2e/chaos.py, by the checker of histories
	// `tests ./mixing`: the tests of a package, for mistakes that are equal in all runs of a simulation.
	byTests = "tests "
)

// mutant is one patch.
type mutant struct {
	name   string
	breaks string // the mistake, in one line
	judge  string
	hunks  []hunk
}

// hunk is a place in a file of the product: where the old text stands, exactly once, the new one is put.
type hunk struct{ file, was, is string }

// load reads all patches, by name.
func load(dir string) (out []*mutant, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		m, err := parse(strings.TrimSuffix(filepath.Base(path), ".patch"), string(text))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		out = append(out, m)
	}
	return out, nil
}

// parse reads a patch: a line that says what it breaks, one that names the judge, then for each file a line `--- path` and hunks. A hunk
// begins with a line `@@`; its lines are kept (' '), taken away ('-') or put in ('+').
func parse(name, text string) (*mutant, error) {
	m := &mutant{name: name}
	file := ""
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		judge, isJudge := strings.CutPrefix(line, "judge: ")
		path, isFile := strings.CutPrefix(line, "--- ")
		last := len(m.hunks) - 1
		switch {
		case i == 0:
			m.breaks = line
		case i == 1 && isJudge && (judge == bySim || judge == byChaos || strings.HasPrefix(judge, byTests)):
			m.judge = judge
		case isFile:
			file = path
		case line == "@@" && file != "":
			m.hunks = append(m.hunks, hunk{file: file})
		case last >= 0 && line != "" && strings.ContainsRune(" -+", rune(line[0])):
			if line[0] != '+' {
				m.hunks[last].was += line[1:] + "\n"
			}
			if line[0] != '-' {
				m.hunks[last].is += line[1:] + "\n"
			}
		default:
			return nil, fmt.Errorf("line %d is no line of a patch: %q", i+1, line)
		}
	}
	if m.judge == "" || len(m.hunks) == 0 {
		return nil, fmt.Errorf("it names no judge or has no hunk")
	}
	return m, nil
}

// apply returns the files that the patch changes, as they are then, by path below root.
func (m *mutant) apply(root string) (map[string]string, error) {
	out := map[string]string{}
	for _, h := range m.hunks {
		text, ok := out[h.file]
		if !ok {
			raw, err := os.ReadFile(filepath.Join(root, h.file))
			if err != nil {
				return nil, fmt.Errorf("apply %s: %w", m.name, err)
			}
			text = string(raw)
		}
		if n := strings.Count("\n"+text, "\n"+h.was); n != 1 {
			return nil, fmt.Errorf("apply %s: %s has the text of a hunk %d times, want once: write the patch anew:\n%s", m.name, h.file, n, h.was)
		}
		out[h.file] = strings.TrimPrefix(strings.Replace("\n"+text, "\n"+h.was, "\n"+h.is, 1), "\n")
	}
	return out, nil
}

// python tells whether the patch is one of the client.
func (m *mutant) python() bool { return strings.HasPrefix(m.hunks[0].file, client) }

// client is where the client's packages are.
const client = "clients/python/src/"
