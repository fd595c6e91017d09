package main

import (
	"encoding/xml"
	"fmt"
	"os"
	"time"
)

// junitFile is the part of a JUnit file that this command reads.
type junitFile struct {
	Suites []struct {
		Time  float64 `xml:"time,attr"`
		Cases []struct {
			Class   string     `xml:"classname,attr"`
			Name    string     `xml:"name,attr"`
			Time    float64    `xml:"time,attr"` // with the fixtures it was the first to need
			Failure *junitText `xml:"failure"`
			Error   *junitText `xml:"error"`
			Skipped *junitText `xml:"skipped"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

type junitText struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// readJUnit counts the cases of a file. A file without cases is an error, because no test ran.
func readJUnit(path, step string, r *report) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read results of %s: %w", step, err)
	}
	var f junitFile
	if err := xml.Unmarshal(b, &f); err != nil {
		return fmt.Errorf("read results of %s: %w", step, err)
	}
	cases, failed := 0, r.failed
	var took float64
	for _, s := range f.Suites {
		took += s.Time
		for _, c := range s.Cases {
			cases++
			name := step + ":" + c.Class + "." + c.Name
			r.test(name, c.Time)
			switch {
			case c.Failure != nil:
				r.fail(name, c.Failure.Text+"\n")
			case c.Error != nil:
				r.fail(name, c.Error.Text+"\n")
			case c.Skipped != nil:
				r.skip(name, c.Skipped.Message)
			default:
				r.pass(name)
			}
		}
	}
	if cases == 0 {
		return fmt.Errorf("results of %s: no tests ran", step)
	}
	verdict := "ok"
	if r.failed > failed {
		verdict = "FAIL"
	}
	r.part(step, verdict, time.Duration(took*float64(time.Second)))
	return nil
}
