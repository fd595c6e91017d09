package setup

import (
	"millrace/internal/app/config"
	"millrace/internal/app/config/value"
	"millrace/orchestrator/feedback"
)

// Adaptive says how weights follow losses, nil where they do not.
func Adaptive(c *config.Config) *feedback.Settings {
	a := c.Adaptive
	if a == nil {
		return nil
	}
	part := func(d value.Decimal) float64 { return float64(d.Billionths()) / 1e9 }
	return &feedback.Settings{Policy: string(a.Policy), Every: a.Every, Warmup: a.Warmup, Floor: part(a.Floor), Smoothing: part(a.Smoothing)}
}
