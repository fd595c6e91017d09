package setup

import (
	"millrace/app/config"
	"millrace/app/config/value"
	"millrace/orchestrator/feedback"
)

// Adaptive returns the policy by which weights follow losses, or nil if the mixture file has none.
func Adaptive(c *config.Config) *feedback.Settings {
	a := c.Adaptive
	if a == nil {
		return nil
	}
	part := func(d value.Decimal) float64 { return float64(d.Billionths()) / 1e9 }
	return &feedback.Settings{
		Policy:    string(a.Policy),
		Every:     a.Every,
		Warmup:    a.Warmup,
		Floor:     part(a.Floor),
		Smoothing: part(a.Smoothing),
	}
}
