package cost

import (
	"math/big"
)

// Model is the shape of a transformer, as far as its operations depend on it. 0 stands for absent, or for the default.
type Model struct {
	Layers, Hidden, Heads, KVHeads, HeadDim uint64 // KVHeads 0: the same as Heads
	FFN                                     uint64 // inner width of the feed-forward part, or of one expert
	Vocab                                   uint64

	// Latent attention. QueryDim is the width of a head's query and key, ValueDim of its value; both 0 stand for
	// HeadDim. QueryRank is the rank of the matrix that queries pass through, KVRank of that for keys and values; 0:
	// not compressed.
	QueryDim, ValueDim, QueryRank, KVRank uint64

	// Mixture of experts: a token passes Active + Shared of them. All 0: a dense model.
	Experts, Active, Shared uint64

	// Sliding windows: WindowLayers layers see Window tokens back. WindowLayers 0 with a Window: all layers.
	Window, WindowLayers uint64

	Encoder *EncoderModel
}

// EncoderModel is the shape of a bidirectional encoder of patches.
type EncoderModel struct {
	Layers, Hidden, Heads, HeadDim, FFN uint64
	Image                               uint64 // patches that see each other; 0: all patches of a document
}

// mostWindow is the longest sequence that can be planned: a longer window sees all of it.
const mostWindow = 1<<24 - 1

// Cost derives the coefficients from the operations of a forward and a backward pass; docs/planning.md has the
// formulas: 6·N·s for N active parameters, and 3·L·h·(d_q+d_v)·s² for causal attention. An encoder has twice that
// attention, because every patch sees every other. The unit is 3 operations in both phases. A model without layers,
// heads or a head's width has the Default cost.
func (m Model) Cost() Cost {
	query, value := m.QueryDim, m.ValueDim
	if query == 0 && value == 0 {
		query, value = m.HeadDim, m.HeadDim
	}
	if m.Layers == 0 || m.Heads == 0 || query+value == 0 {
		return Default()
	}
	windowed := min(m.WindowLayers, m.Layers)
	if m.Window > 0 && m.WindowLayers == 0 {
		windowed = m.Layers
	}
	if m.Window == 0 {
		windowed = 0
	}
	c := Cost{
		Linear:    saturate(product(2), m.parameters(query, value)),
		Quadratic: saturate(product(m.Layers-windowed, m.Heads), product(query+value)),
	}
	if windowed > 0 {
		c.Windowed = saturate(product(windowed, m.Heads), product(query+value))
		c.Window = uint32(min(m.Window, mostWindow))
	}
	if e := m.Encoder; e != nil {
		c.Encoder = e.cost()
	}
	return c
}

// parameters counts the parameters that a token passes, with the embeddings on both ends and the router of the experts.
func (m Model) parameters(query, value uint64) *big.Int {
	kv := m.KVHeads
	if kv == 0 {
		kv = m.Heads
	}
	n := product(m.Hidden, m.Heads, value) // output
	n.Add(n, factored(m.Hidden, m.QueryRank, m.Heads, query))
	if m.KVRank > 0 {
		n.Add(n, factored(m.Hidden, m.KVRank, m.Heads, query+value))
	} else {
		n.Add(n, product(m.Hidden, kv, query+value))
	}
	passed := m.Active + m.Shared
	if m.Experts == 0 {
		passed = 1
	}
	n.Add(n, product(m.Hidden, m.FFN, 3*passed))
	n.Add(n, product(m.Hidden, m.Experts))
	n.Mul(n, product(m.Layers))
	return n.Add(n, product(m.Hidden, m.Vocab, 2))
}

// factored counts the parameters from hidden to heads of a width, through a rank unless that is 0.
func factored(hidden, rank, heads, width uint64) *big.Int {
	if rank == 0 {
		return product(hidden, heads, width)
	}
	n := product(hidden, rank)
	return n.Add(n, new(big.Int).Mul(product(rank, heads), product(width)))
}

// cost returns the cost of an encoder with two matrices in its feed-forward part, as in ViT.
func (e *EncoderModel) cost() Encoder {
	width := e.HeadDim
	if width == 0 && e.Heads > 0 {
		width = e.Hidden / e.Heads
	}
	n := product(e.Hidden, e.Heads, width, 4)
	n.Add(n, product(e.Hidden, e.FFN, 2))
	n.Mul(n, product(e.Layers, 2))
	attention := product(e.Layers, e.Heads, width, 4)
	if e.Image > 0 {
		n.Add(n, new(big.Int).Mul(attention, product(e.Image)))
		return Encoder{Linear: saturate(n)}
	}
	return Encoder{Linear: saturate(n), Quadratic: saturate(attention)}
}

func product(factors ...uint64) *big.Int {
	p := big.NewInt(1)
	for _, f := range factors {
		p.Mul(p, new(big.Int).SetUint64(f))
	}
	return p
}

// saturate returns a product, 2^62 at most.
func saturate(factors ...*big.Int) uint64 {
	const most = 1 << 62
	p := big.NewInt(1)
	for _, f := range factors {
		p.Mul(p, f)
	}
	if !p.IsUint64() || p.Uint64() > most {
		return most
	}
	return p.Uint64()
}
