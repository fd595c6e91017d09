package main

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"time"
)

// goEvent is one line of `go test -json` (see `go doc test2json`).
type goEvent struct {
	Action      string
	Package     string
	ImportPath  string // in build-output and build-fail
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// goReader reads the output of one `go test -json`. If a test has subtests, it counts only these.
type goReader struct {
	step    string
	r       *report
	output  map[string]*strings.Builder // by package and test, of running tests
	parents map[string]bool
	broken  map[string]int  // failed tests by package
	rest    strings.Builder // lines that are not events
}

func newGoReader(step string, r *report) *goReader {
	return &goReader{
		step:    step,
		r:       r,
		output:  map[string]*strings.Builder{},
		parents: map[string]bool{},
		broken:  map[string]int{},
	}
}

// read takes events until the end and returns the lines that are not events.
func (g *goReader) read(in io.Reader) (string, error) {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		var e goEvent
		if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
			g.event(e)
		} else if line != "" {
			g.rest.WriteString(line)
		}
		if err == io.EOF {
			return g.rest.String(), nil
		}
		if err != nil {
			return g.rest.String(), err
		}
	}
}

func (g *goReader) name(e goEvent) string {
	name := strings.TrimPrefix(e.Package, "millrace/")
	if e.Test != "" {
		name += "." + e.Test
	}
	if g.step != "go" {
		name = g.step + ":" + name
	}
	return name
}

func (g *goReader) event(e goEvent) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "run":
		for parent := e.Test; ; {
			i := strings.LastIndexByte(parent, '/')
			if i < 0 {
				break
			}
			parent = parent[:i]
			g.parents[e.Package+" "+parent] = true
		}
	case "output":
		g.text(key).WriteString(e.Output)
	case "build-output":
		g.text("build " + e.ImportPath).WriteString(e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			g.endPackage(e, key)
		} else {
			g.endTest(e, key)
		}
		delete(g.output, key)
	}
}

func (g *goReader) text(key string) *strings.Builder {
	b, ok := g.output[key]
	if !ok {
		b = &strings.Builder{}
		g.output[key] = b
	}
	return b
}

func (g *goReader) endTest(e goEvent, key string) {
	isParent := g.parents[key]
	if !isParent {
		g.r.test(g.name(e), e.Elapsed)
	}
	switch e.Action {
	case "pass":
		if !isParent {
			g.r.pass(g.name(e))
		}
	case "skip":
		if !isParent {
			g.r.skip(g.name(e), reasonOf(g.text(key).String()))
		}
	case "fail":
		// A parent counts as failed if none of its subtests failed.
		if isParent && g.broken[key] > 0 {
			return
		}
		g.r.fail(g.name(e), g.text(key).String())
		g.broken[e.Package+" "]++
		for parent := e.Test; strings.Contains(parent, "/"); {
			parent = parent[:strings.LastIndexByte(parent, '/')]
			g.broken[e.Package+" "+parent]++
		}
	}
}

// endPackage reports a package. A package that failed without a failing test is a failure itself: it did not build, or
// it crashed.
func (g *goReader) endPackage(e goEvent, key string) {
	if e.Action == "skip" {
		return // no test files
	}
	if e.Action == "fail" && g.broken[key] == 0 {
		g.r.fail(g.name(e), g.text("build "+e.FailedBuild).String()+g.text(key).String())
	}
	verdict := map[string]string{"pass": "ok", "fail": "FAIL"}[e.Action]
	g.r.part(g.name(e), verdict, time.Duration(e.Elapsed*float64(time.Second)))
}

// reasonOf returns the text of t.Skip: the last line that is not printed by the runner.
func reasonOf(output string) string {
	reason := ""
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			reason = line
		}
	}
	return reason
}
