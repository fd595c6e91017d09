package feedback

import (
	"encoding/binary"
	"math"
	"slices"

	"millrace"
)

// Settings configure a policy.
type Settings struct {
	Policy    string  // ODM or ADO
	Every     uint64  // steps between two sets of weights
	Warmup    uint64  // steps before the first
	Floor     float64 // least share of a source with a share; Floor times the number of sources is below 1
	Smoothing float64 // part of the past in moving averages, from 0 to below 1
}

// The policies.
const (
	ODM = "odm"
	ADO = "ado"
)

// Parts is the sum of the weights that a policy returns.
const Parts = 1_000_000

// Policy turns losses into weights. One owner.
type Policy struct {
	settings Settings
	prior    []float64 // shares in the mixture file
	arms     []arm     // by source
	through  uint64    // losses of steps below this step have been counted
	made     uint64    // sets of weights so far
	sums     []float64 // of losses since then
	tokens   []float64 // of these losses
}

// arm is a policy's memory of a source. Each policy uses some of the numbers.
type arm struct {
	reward float64 // odm: moving average of the loss
	credit float64 // ado: moving average of the share it had
	share  float64 // ado: moving average of the share it should have
	seen   float64 // ado: tokens reported
	weight float64 // ado: sum of the weights of the line's points
	x, y   float64 // ado: their mean logarithms of tokens and of loss
	xx, xy float64 // ado: their mean square of x and product of x and y, about the mean
}

// NewPolicy returns a policy without memory. prior has the shares of the sources in the mixture file.
func NewPolicy(s Settings, prior []float64) (*Policy, error) {
	switch {
	case s.Policy != ODM && s.Policy != ADO:
		return nil, millrace.Errorf(millrace.ErrInvalid, "adaptive policy %q: it is %s or %s", s.Policy, ODM, ADO)
	case s.Every == 0:
		return nil, millrace.Errorf(millrace.ErrInvalid, "adaptive policy: every is 0")
	case s.Floor < 0 || s.Floor*float64(len(prior)) >= 1:
		return nil, millrace.Errorf(millrace.ErrInvalid,
			"adaptive policy: a floor of %v for each of %d sources leaves nothing to decide", s.Floor, len(prior))
	case s.Smoothing < 0 || s.Smoothing >= 1:
		return nil, millrace.Errorf(millrace.ErrInvalid, "adaptive policy: smoothing %v lies outside 0 … 1",
			s.Smoothing)
	}
	n := len(prior)
	return &Policy{
		settings: s,
		prior:    prior,
		arms:     make([]arm, n),
		sums:     make([]float64, n),
		tokens:   make([]float64, n),
	}, nil
}

// Clone returns a copy. Changes of one do not change the other.
func (p *Policy) Clone() *Policy {
	out := *p
	out.arms, out.sums, out.tokens = slices.Clone(p.arms), slices.Clone(p.sums), slices.Clone(p.tokens)
	return &out
}

// Report adds a rank's loss of a source in a step: sum is the sum of the losses of `tokens` tokens. Steps that were
// counted before are ignored.
func (p *Policy) Report(step uint64, source int, sum float64, tokens uint64) {
	if step < p.through || source < 0 || source >= len(p.arms) || tokens == 0 || math.IsNaN(sum) ||
		math.IsInf(sum, 0) || sum < 0 {
		return
	}
	p.sums[source] += sum
	p.tokens[source] += float64(tokens)
}

// IsDue reports whether new weights are due after every rank has consumed all steps below `below`.
func (p *Policy) IsDue(below uint64) bool {
	return below >= p.settings.Warmup && below >= p.through+p.settings.Every
}

// Weights returns weights in parts of Parts, from the reports of steps below `below`. now has the present share of each
// source; a source without one gets none. It reports false if there was no report of any source with a share.
func (p *Policy) Weights(below uint64, now []float64) (parts []uint32, ok bool) {
	known, active := 0, 0
	for i := range p.arms {
		if now[i] > 0 {
			active++
			if p.tokens[i] > 0 {
				known++
			}
		}
	}
	if known == 0 {
		return nil, false
	}
	var shares []float64
	if p.settings.Policy == ODM {
		shares = p.odm(now, active)
	} else {
		shares = p.ado(now)
	}
	clear(p.sums)
	clear(p.tokens)
	p.through, p.made = below, p.made+1
	return round(floored(shares, now, p.settings.Floor)), true
}

// floored scales shares to a sum of 1. Each source with a present share gets at least a floor.
func floored(shares, now []float64, floor float64) []float64 {
	sum, active := 0.0, 0.0
	for i := range shares {
		if now[i] <= 0 {
			shares[i] = 0
			continue
		}
		sum, active = sum+shares[i], active+1
	}
	for i := range shares {
		if now[i] <= 0 {
			continue
		}
		even := 1 / active
		if sum > 0 && !math.IsInf(sum, 0) && !math.IsNaN(sum) {
			even = shares[i] / sum
		}
		shares[i] = floor + (1-active*floor)*even
	}
	return shares
}

// round returns integers for shares that add up to 1. A positive share never becomes 0.
func round(shares []float64) []uint32 {
	out := make([]uint32, len(shares))
	for i, s := range shares {
		if s > 0 {
			out[i] = uint32(max(1, math.Round(s*Parts)))
		}
	}
	return out
}

// summaryVersion is the first byte of a summary.
const summaryVersion = 1

// Summary returns the policy's memory: 17 bytes, and 4 (odm) or 32 (ado) for each source.
func (p *Policy) Summary() []byte {
	out := []byte{summaryVersion}
	out = binary.LittleEndian.AppendUint64(out, p.through)
	out = binary.LittleEndian.AppendUint64(out, p.made)
	for i := range p.arms {
		for _, x := range p.arms[i].numbers(p.settings.Policy) {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(*x)))
		}
	}
	return out
}

// numbers returns the numbers that a policy keeps of a source.
func (a *arm) numbers(policy string) []*float64 {
	if policy == ODM {
		return []*float64{&a.reward}
	}
	return []*float64{&a.credit, &a.share, &a.seen, &a.weight, &a.x, &a.y, &a.xx, &a.xy}
}

// Restore loads a summary. It ignores one of another policy or of other sources.
func (p *Policy) Restore(summary []byte) {
	each := 4 * len(new(arm).numbers(p.settings.Policy))
	if len(summary) != 17+each*len(p.arms) || summary[0] != summaryVersion {
		return
	}
	p.through, p.made = binary.LittleEndian.Uint64(summary[1:]), binary.LittleEndian.Uint64(summary[9:])
	rest := summary[17:]
	for i := range p.arms {
		for _, x := range p.arms[i].numbers(p.settings.Policy) {
			*x = float64(math.Float32frombits(binary.LittleEndian.Uint32(rest)))
			rest = rest[4:]
		}
	}
}
