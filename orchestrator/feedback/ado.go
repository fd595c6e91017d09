package feedback

import "math"

// The parameters s, gamma1 and gamma2 of the paper; both gammas have one value.
const (
	creditPower = 0.5
	creditRate  = 0.1
)

// ado is Adaptive Data Optimization (Jiang et al. 2024, arXiv 2410.11820). A scaling law of the tokens seen is fitted
// to the loss of each source. The share of a source is proportional to three factors. The first is its share in the
// mixture file. The second is the fall of its loss with the next token, by that law. The third is the square root of a
// moving average of its past shares, as its part of the progress. The result is averaged over time.
//
// This implementation differs in the fit. The paper fits beta * n^-alpha + epsilon to all losses so far. Here a line is
// fitted to the logarithms, with weights that fall by Smoothing with every interval. Only the present slope of the law
// is used. The line gives the slope for any epsilon, and five numbers hold the line.
func (p *Policy) ado(now []float64) []float64 {
	shares, sum := make([]float64, len(p.arms)), 0.0
	for i := range p.arms {
		a := &p.arms[i]
		if now[i] <= 0 {
			continue
		}
		if p.tokens[i] > 0 {
			a.seen += p.tokens[i]
			a.point(math.Log(a.seen), math.Log(max(p.sums[i]/p.tokens[i], 1e-9)), p.settings.Smoothing)
		}
		if a.credit == 0 {
			a.credit = now[i]
		}
		a.credit = creditRate*now[i] + (1-creditRate)*a.credit
		shares[i] = p.prior[i] * math.Pow(a.credit, creditPower) * a.speed()
		sum += shares[i]
	}
	if sum <= 0 || math.IsInf(sum, 0) || math.IsNaN(sum) { // no loss falls, or no loss is known yet
		return append(shares[:0], now...)
	}
	for i := range shares {
		if a := &p.arms[i]; now[i] > 0 {
			if a.share == 0 {
				a.share = now[i]
			}
			a.share = p.settings.Smoothing*a.share + (1-p.settings.Smoothing)*shares[i]/sum
			shares[i] = a.share
		}
	}
	return shares
}

// point adds a point to the line and reduces the weight of the older ones.
func (a *arm) point(x, y, fade float64) {
	old := a.weight * fade
	a.weight = old + 1
	dx, dy := x-a.x, y-a.y
	a.x, a.y = a.x+dx/a.weight, a.y+dy/a.weight
	keep := old / a.weight
	a.xx, a.xy = keep*(a.xx+dx*dx/a.weight), keep*(a.xy+dx*dy/a.weight)
}

// speed returns the fall of the loss with the next token, by the line. It is 0 if the loss rises or fewer than two
// points are known.
func (a *arm) speed() float64 {
	if a.xx <= 0 || a.seen <= 0 {
		return 0
	}
	alpha := -a.xy / a.xx
	return max(0, alpha) * math.Exp(a.y-alpha*(math.Log(a.seen)-a.x)) / a.seen
}
