package config

import (
	"fmt"
	"io"
	"os"
	"reflect"

	"millrace"
)

// LoadMilestones reads the entries of a schedule from a file of its own: a list as under mixture.schedule of a mixture file, or that list under the key `schedule`. The
// first may begin anywhere and be a ramp. Whether the weights are those of a run's sources is not looked at. An error wraps millrace.ErrInvalid.
func LoadMilestones(path string) ([]Milestone, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "read schedule: %w", err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "read schedule: %w", err)
	}
	doc, errs := newDocument(path, content)
	if len(errs) > 0 {
		return nil, errs.sorted()
	}
	d := decoder{document: doc}
	var file struct {
		Schedule []Milestone `yaml:"schedule" jsonschema:"required"`
	}
	if doc.root.kind == sequence {
		d.places["schedule"] = entry{key: doc.root, value: doc.root}
		d.decode("schedule", doc.root, reflect.ValueOf(&file.Schedule).Elem(), rules{})
	} else {
		d.decode("", doc.root, reflect.ValueOf(&file).Elem(), rules{})
	}
	v := validator{decoder: &d, c: &Config{}}
	for i := range file.Schedule {
		path := fmt.Sprintf("schedule[%d]", i)
		v.checkMilestone(path, &file.Schedule[i], false)
		if k := &file.Schedule[i]; v.sound(path) && (k.Weights.Derived != nil || len(k.Weights.Given) == 0) {
			v.wrong(path+".weights", "a run that goes on takes weights source by source", "write `weights: {` with a number for each source; `millrace mix DIR show` prints those in force")
		}
	}
	if len(d.errs) == 0 {
		v.checkOrder("schedule", file.Schedule)
	}
	if len(d.errs) == 0 && len(file.Schedule) == 0 {
		v.wrong("schedule", "the schedule is empty", "write at least one entry")
	}
	if len(d.errs) > 0 {
		return nil, d.errs.sorted()
	}
	return file.Schedule, nil
}
