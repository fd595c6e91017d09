package cost

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"millrace"
)

// TestModelCost: S*, the length at which attention costs as much as everything linear, of known models.
func TestModelCost(t *testing.T) {
	for _, tt := range []struct {
		name      string
		model     Model
		low, high uint64
	}{
		{
			"llama 8B", Model{Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128, FFN: 14336, Vocab: 128256},
			60900, 61400,
		},
		{
			"llama 70B",
			Model{Layers: 80, Hidden: 8192, Heads: 64, KVHeads: 8, HeadDim: 128, FFN: 28672, Vocab: 128256},
			107000, 109000,
		},
		{
			"mixtral 8x7B",
			Model{
				Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128, FFN: 14336, Vocab: 32000, Experts: 8,
				Active: 2,
			},
			97000, 99000,
		},
		{
			"qwen3 30B-A3B",
			Model{
				Layers: 48, Hidden: 2048, Heads: 32, KVHeads: 4, HeadDim: 128, FFN: 768, Vocab: 151936, Experts: 128,
				Active: 8,
			},
			16500, 17500,
		},
		{
			"deepseek v3",
			Model{
				Layers: 61, Hidden: 7168, Heads: 128, FFN: 2048, Vocab: 129280, Experts: 256, Active: 8, Shared: 1,
				QueryDim: 192, ValueDim: 128, QueryRank: 1536, KVRank: 512,
			},
			28000, 31000,
		},
		{"none", Model{}, 61000, 61001},
		{
			"beyond all", Model{Layers: 1 << 60, Hidden: 1 << 60, Heads: 1, HeadDim: 1, FFN: 1 << 60, Vocab: 1 << 60},
			1, 3,
		},
	} {
		if c := tt.model.Cost(); c.Linear/c.Quadratic < tt.low || c.Linear/c.Quadratic >= tt.high {
			t.Errorf("%s: S* = %d, want %d … %d", tt.name, c.Linear/c.Quadratic, tt.low, tt.high)
		}
	}
}

// TestWindowsAndEncoders: layers with a window cost less for segments beyond it. Attention of an encoder costs twice as
// much, within one image at most.
func TestWindowsAndEncoders(t *testing.T) {
	m := Model{Layers: 4, Hidden: 8, Heads: 2, HeadDim: 4, FFN: 16, Vocab: 10, Window: 100, WindowLayers: 3}
	full := m
	full.Window, full.WindowLayers = 0, 0
	cost := func(m Model, tokens, patches uint32) [2]uint64 {
		s := millrace.Segment{Length: tokens, Patches: patches}
		w := m.Cost().
			Weigher(Extent{longest: tokens, tokens: uint64(tokens), mostPatches: patches, patches: uint64(patches)})
		e, b := w.Of(&s)
		return [2]uint64{e, b}
	}
	attention := uint64(2 * 2 * 4) // of a layer and a pair of tokens, in the cost's unit
	if a, b := cost(m, 100, 0), cost(full, 100, 0); a != b {
		t.Errorf("within the window %v, without one %v", a, b)
	}
	if a, b := cost(m, 300, 0)[1], cost(full, 300, 0)[1]; b-a != 3*attention*(300*300-(2*300*100-100*100)) {
		t.Errorf("beyond the window %d, without one %d", a, b)
	}
	m.WindowLayers = 0
	if c := m.Cost(); c.Quadratic != 0 || c.Windowed != 4*attention {
		t.Errorf("windows in all layers: %+v", c)
	}
	full.Encoder = &EncoderModel{Layers: 3, Hidden: 8, Heads: 2, FFN: 32}
	linear := uint64(2 * 3 * (4*8*8 + 2*8*32))
	if got, want := cost(full, 1, 50)[0], linear*50+2*3*attention*50*50; got != want {
		t.Errorf("the encoder costs %d, want %d", got, want)
	}
	full.Encoder.Image = 10
	if got, want := cost(full, 1, 50)[0], linear*50+2*3*attention*50*10; got != want {
		t.Errorf("the encoder of 5 images costs %d, want %d", got, want)
	}
}

// TestRefit: other coefficients of the backbone leave a patch its price in tokens.
func TestRefit(t *testing.T) {
	c := Cost{Linear: 100, Quadratic: 1, Windowed: 3, Window: 8, Encoder: Encoder{Linear: 50, Quadratic: 4}}
	if got, want := c.Refit(1000, 9), (Cost{
		Linear: 1000, Quadratic: 9, Encoder: Encoder{Linear: 500, Quadratic: 40},
	}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := c.Refit(0, 9), (Cost{Quadratic: 9, Encoder: c.Encoder}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := (Cost{}).Refit(7, 1); got != (Cost{Linear: 7, Quadratic: 1}) {
		t.Errorf("got %+v", got)
	}
}

// TestSumsFit: no sum over a step exceeds 2^60 with any coefficients, and costs are exact to the last bit.
func TestSumsFit(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 1))
	for range 2000 {
		some := func() uint64 { return rng.Uint64() >> rng.IntN(64) * rng.Uint64N(2) }
		c := Cost{
			Linear:    some(),
			Quadratic: some(),
			Windowed:  some(),
			Window:    rng.Uint32() >> (8 + rng.IntN(24)),
			Encoder:   Encoder{some(), some()},
		}
		s := millrace.Segment{
			Length:  1 + rng.Uint32N(mostWindow)>>rng.IntN(24),
			Patches: rng.Uint32() >> (rng.IntN(32)),
		}
		n := uint64(1) << rng.IntN(23)
		w := c.Weigher(Extent{
			longest:     s.Length,
			mostPatches: s.Patches,
			tokens:      n * uint64(s.Length),
			patches:     n * uint64(s.Patches),
		})
		encoder, backbone := w.Of(&s)
		if c.isZero() {
			c = Default()
		}
		if sum := encoder + backbone; sum > (1<<costSumBits)/n+1 {
			t.Fatalf("%+v: %d segments of %+v cost %d each", c, n, s, sum)
		}
		if want := exact(c, s, w.shift); backbone != want {
			t.Fatalf("%+v: %+v costs %d, want %d", c, s, backbone, want)
		}
	}
}

func exact(c Cost, s millrace.Segment, shift uint) uint64 {
	t, window := uint64(s.Length), uint64(c.Window)
	inside := min(t, window)
	pairs := product(inside, inside)
	pairs.Add(pairs, product(2, t-inside, window))
	sum := product(c.Linear, t)
	sum.Add(sum, product(c.Quadratic, t, t))
	sum.Add(sum, pairs.Mul(pairs, product(c.Windowed)))
	positive := sum.Sign() > 0
	if sum.Rsh(sum, shift); positive && sum.Sign() == 0 {
		sum = big.NewInt(1)
	}
	return sum.Uint64()
}
