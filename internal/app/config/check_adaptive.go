package config

import "fmt"

// checkAdaptive checks that a policy has something to decide.
func (v *validator) checkAdaptive() {
	a := v.c.Adaptive
	if a == nil || !v.sound("adaptive") {
		return
	}
	if _, schedule := v.place("mixture.schedule"); schedule {
		v.wrongKey("adaptive", "`adaptive` and `mixture.schedule` exclude each other", "write `mixture.weights`: what the policy begins with, and for ado the shares it compares with")
	}
	n := uint64(len(v.c.Sources))
	if v.sourcesNamed() && n > 0 && a.Floor.Billionths()*n >= pow9 {
		v.wrong("adaptive.floor", fmt.Sprintf("a floor of %s for each of %d sources leaves nothing to decide", a.Floor, n), fmt.Sprintf("write less than 1/%d", n))
	}
	if a.Smoothing.Billionths() >= pow9 {
		v.wrong("adaptive.smoothing", "with a smoothing of 1 nothing ever changes", "write less than 1, such as 0.9")
	}
}
