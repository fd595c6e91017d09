package feedback

import "math"

// odm is Online Data Mixing (Albalak et al. 2023, arXiv 2312.02406). The sources are the arms of a bandit with
// exponential weights. The reward is the training loss, so the sources with the highest loss are drawn most. The
// exploration falls as sqrt(ln K / (K t)).
//
// This implementation differs in three points. Every interval contains every source in its share. So the reward is the
// mean loss over the interval's tokens, without division by the probability of the source. An interval without reports
// of a source leaves its average as it was. The floor still holds after the exploration has fallen below it.
func (p *Policy) odm(now []float64, active int) []float64 {
	k, t := float64(active), float64(p.made+1)
	rate := func(t float64) float64 { return min(1/k, math.Sqrt(math.Log(max(k, 2))/(k*t))) }
	explore, learn := rate(t), rate(max(t-1, 1))
	most := 0.0
	for i := range p.arms {
		a := &p.arms[i]
		if p.tokens[i] > 0 {
			loss := p.sums[i] / p.tokens[i]
			if a.reward == 0 {
				a.reward = loss
			}
			a.reward = p.settings.Smoothing*a.reward + (1-p.settings.Smoothing)*loss
		}
		if now[i] > 0 {
			most = max(most, a.reward)
		}
	}
	shares, sum := make([]float64, len(p.arms)), 0.0
	for i := range shares {
		if now[i] > 0 {
			shares[i] = math.Exp(learn * k * (p.arms[i].reward - most)) // below 1: no overflow
			sum += shares[i]
		}
	}
	for i := range shares {
		if now[i] > 0 {
			shares[i] = (1-k*explore)*shares[i]/sum + explore
		}
	}
	return shares
}
