package setup

import (
	"millrace/app/config"
	"millrace/orchestrator/planner/cost"
)

// Costs returns the coefficients of a sequence's compute.
func Costs(c *config.Config) cost.Cost {
	switch {
	case c.Cost != nil && c.Cost.Backbone.Input != "":
		return withEncoder(cost.Cost{Linear: c.Cost.Backbone.Linear, Quadratic: c.Cost.Backbone.Quadratic}, c.Cost)
	case c.Cost != nil:
		return withEncoder(cost.Cost{Linear: c.Cost.Linear, Quadratic: c.Cost.Quadratic}, c.Cost)
	case c.Model != nil:
		return model(c.Model).Cost()
	}
	return cost.Default()
}

func withEncoder(backbone cost.Cost, c *config.Cost) cost.Cost {
	backbone.Encoder = cost.Encoder{Linear: c.Encoder.Linear, Quadratic: c.Encoder.Quadratic}
	return backbone
}

func model(m *config.Model) cost.Model {
	out := cost.Model{
		Layers:       uint64(m.Layers),
		Hidden:       uint64(m.Hidden),
		Heads:        uint64(m.Heads),
		KVHeads:      uint64(m.KVHeads),
		HeadDim:      uint64(m.HeadDim),
		FFN:          uint64(m.FFN),
		Vocab:        uint64(m.Vocab),
		Window:       uint64(m.Window),
		WindowLayers: uint64(m.WindowLayers),
		Experts:      uint64(m.Experts),
		Active:       uint64(m.ActiveExperts),
		Shared:       uint64(m.SharedExperts),
	}
	if a := m.MLA; a != nil {
		out.QueryDim, out.ValueDim, out.QueryRank, out.KVRank = uint64(
			a.Q,
		), uint64(
			a.V,
		), uint64(
			a.QRank,
		), uint64(
			a.KVRank,
		)
	}
	if e := m.Encoder; e != nil {
		out.Encoder = &cost.EncoderModel{
			Layers:  uint64(e.Layers),
			Hidden:  uint64(e.Hidden),
			Heads:   uint64(e.Heads),
			HeadDim: uint64(e.HeadDim),
			FFN:     uint64(e.FFN),
			Image:   uint64(e.PatchesPerImage),
		}
	}
	return out
}
