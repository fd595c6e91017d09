package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// failures is the folder of failed seeds. Each test run replays them.
const failures = "testdata/failures"

// replays is the number of plays of a script, because a single pass proves little.
const replays = 3

// failure is a script under which a property did not hold.
type failure struct {
	Script   *script
	Violated string
	Detail   string
	Commit   string
	path     string
}

// text returns the content of the failure's file: its description, line by line, then the script.
func (f *failure) text() ([]byte, error) {
	body, err := json.MarshalIndent(f.Script, "", " ")
	if err != nil {
		return nil, err
	}
	detail := strings.Join(strings.Fields(f.Detail), " ")
	return fmt.Appendf(nil, "violated: %s\ndetail: %s\ncommit: %s\n%s\n", f.Violated, detail, f.Commit, body), nil
}

func parseFailure(text []byte) (*failure, error) {
	f := &failure{Script: &script{}}
	head, body, found := bytes.Cut(text, []byte("\n{"))
	if !found {
		return nil, fmt.Errorf("read failure: it has no script")
	}
	for line := range strings.Lines(string(head)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch name {
		case "violated":
			f.Violated = value
		case "detail":
			f.Detail = value
		case "commit":
			f.Commit = value
		}
	}
	if err := json.Unmarshal(append([]byte("{"), body...), f.Script); err != nil {
		return nil, fmt.Errorf("read failure: %w", err)
	}
	return f, nil
}

// keep writes a failure's file.
func keep(f *failure) (path string, err error) {
	f.Commit = commit()
	text, err := f.text()
	if err != nil {
		return "", err
	}
	path = filepath.Join(failures, fmt.Sprintf("%d.txt", f.Script.Seed))
	return path, os.WriteFile(path, text, 0o644)
}

// kept reads all files of failures.
func kept(t *testing.T) (out []*failure) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(failures, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parseFailure(text)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		f.path = path
		out = append(out, f)
	}
	return out
}

// commit returns the name of the tree in git, if it has one.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// shrink removes faults and phases while the same property stays violated.
func (b *bench) shrink(t *testing.T, s *script, o verdict) *failure {
	f := &failure{Script: s, Violated: o.Violated, Detail: o.Detail}
	fails := func(s script) bool {
		for range replays {
			if o := b.play(t, &s); o.Violated == f.Violated {
				f.Script, f.Detail = &s, o.Detail
				return true
			}
		}
		return false
	}
	for i := len(s.Faults) - 1; i >= 0; i-- {
		less := *f.Script
		less.Faults = slices.Delete(slices.Clone(less.Faults), i, i+1)
		fails(less)
	}
	for i := len(s.Phases) - 2; i >= 0; i-- {
		less := *f.Script
		less.Phases = slices.Delete(slices.Clone(less.Phases), i, i+1)
		less.Phases[0].Start = "fresh"
		fails(less)
	}
	return f
}
