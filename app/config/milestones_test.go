package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace"
)

func TestLoadMilestones(t *testing.T) {
	path := filepath.Join(t.TempDir(), "schedule.yaml")
	load := func(text string) ([]Milestone, error) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return LoadMilestones(path)
	}
	list := "- {from_step: 500, weights: {web: 0.3, code: 0.7}, ramp: linear, over_steps: 200}\n- {from_step: 900, " +
		"weights: {web: 1, code: 0}}\n"
	for _, text := range []string{list, "schedule:\n" + list} {
		milestones, err := load(text)
		if err != nil || len(milestones) != 2 || milestones[0].Over() != 200 || milestones[0].Ramp != RampLinear ||
			milestones[1].Weights.Given[1].Source != "web" {
			t.Errorf("%q: %+v, %v", text, milestones, err)
		}
	}
	for text, want := range map[string]string{
		"- {from_step: 5, weights: {web: .nan}}": "schedule.yaml:1:",
		"- {from_step: 5, weights: {web: -1}}":   "negative",
		"- {from_step: 5, weights: {web: 1}}\n- {from_step: 5, weights: {web: 1}}": "" +
			"schedule.yaml:2:15: milestones must be in order: 5 is not after 5",
		"- {from_step: 5, weights: {web: 1}, ramp: linear}":                          "a ramp needs a length",
		"- {from_step: 5, weights: {web: 1}}\n- {from_tokens: 9, weights: {web: 1}}": "not in both",
		"schedule: []":                        "the schedule is empty",
		"weights: {web: 1}":                   "weights",
		"- {from_step: 5, wieghts: {web: 1}}": "wieghts",
		"- {weights: {web: 1}}":               "neither `from_step` nor `from_tokens`",
	} {
		if _, err := load(text); err == nil || !errors.Is(err, millrace.ErrInvalid) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := LoadMilestones(path + "x"); !errors.Is(err, millrace.ErrInvalid) {
		t.Errorf("a file that is not there: %v", err)
	}
}
