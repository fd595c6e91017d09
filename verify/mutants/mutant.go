// Command mutants tests the checks of the product. Each patch in the folder patches breaks the product in one place.
// The simulation, the tests of a package, or the checker of histories over real processes must notice. A mutant that
// survives shows a gap in these checks.
//
//	go run ./verify/mutants [-only name,name] [-seeds 1000] [-faults 150]
//
// A patch that no longer applies to the product's code is an error.
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
	bySim   = "sim"   // seeds of verify/sim
	byChaos = "chaos" // runs of e2e/chaos.py, by the checker of histories
	// `tests ./mixing`: the tests of a package, for mistakes that are equal in all runs of the simulation.
	byTests = "tests "
)

// mutant is one patch.
type mutant struct {
	name   string
	breaks string // the mistake, in one line
	judge  string
	hunks  []hunk
}

// hunk replaces an old text, which occurs once in a file of the product, by a new one.
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

// parse reads a patch. Its first line describes the mistake, the second names the judge. Then, for each file, come a
// line `--- path` and hunks. A hunk begins with a line `@@`. Its lines are kept (' '), removed ('-') or added ('+').
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

// apply returns the changed files by their path below root.
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
			return nil, fmt.Errorf("apply %s: %s has the text of a hunk %d times, want once: write the patch anew:\n%s",
				m.name, h.file, n, h.was)
		}
		out[h.file] = strings.TrimPrefix(strings.Replace("\n"+text, "\n"+h.was, "\n"+h.is, 1), "\n")
	}
	return out, nil
}

// isPython reports whether the patch changes the client.
func (m *mutant) isPython() bool { return strings.HasPrefix(m.hunks[0].file, client) }

// client is the folder of the client's packages.
const client = "clients/python/src/"
