package feedback

import "math"

// Calibration derives coefficients of cost from reported times: t = c + a * tokens + b * tokens squared, over
// microbatches, by least squares. If microbatches have nearly equal lengths, c cannot be separated from a and is left
// out. The newest reports count most. The zero value is ready. One owner.
type Calibration struct {
	n, weight              float64
	x, y, t                float64 // means
	xx, yy, tt, xy, xt, yt float64 // mean products
}

// fade is the factor by which each report lowers the weight of earlier ones: about ten thousand reports count.
const fade = 1 - 1e-4

// leastReports is the least number of reports for a result.
const leastReports = 32

// Add adds a microbatch: the sum of the lengths of its documents, the sum of their squares, and its time.
func (f *Calibration) Add(tokens, squares, seconds float64) {
	f.n++
	f.weight = f.weight*fade + 1
	part := 1 / f.weight
	mean := func(m *float64, v float64) { *m += (v - *m) * part }
	mean(&f.x, tokens)
	mean(&f.y, squares)
	mean(&f.t, seconds)
	mean(&f.xx, tokens*tokens)
	mean(&f.yy, squares*squares)
	mean(&f.tt, seconds*seconds)
	mean(&f.xy, tokens*squares)
	mean(&f.xt, tokens*seconds)
	mean(&f.yt, squares*seconds)
}

// Reports returns the number of microbatches added.
func (f *Calibration) Reports() uint64 { return uint64(f.n) }

// R2 returns the part of the variance of reported times that a cost of linear * tokens + quadratic * squares predicts.
// The cost may differ from the times by a factor and a constant.
func (f *Calibration) R2(linear, quadratic uint64) float64 {
	a, b := float64(linear), float64(quadratic)
	vx, vy, cxy := f.xx-f.x*f.x, f.yy-f.y*f.y, f.xy-f.x*f.y
	cost := a*a*vx + 2*a*b*cxy + b*b*vy
	both := a*(f.xt-f.x*f.t) + b*(f.yt-f.y*f.t)
	times := f.tt - f.t*f.t
	if cost <= 0 || times <= 0 {
		return 0
	}
	return min(1, both*both/(cost*times))
}

// scale is the fixed point of the coefficients: solve always returns it as the quadratic one, if that is not 0.
const scale = 1024

// mostRatio bounds the length at which attention costs as much as everything linear, for times that show almost no
// attention.
const mostRatio = 1e9

// surely bounds the standard error of the linear coefficient, as a fraction of the coefficient, for a result with a
// constant.
const surely = 0.1

// Best returns the coefficients that explain the times best, in a common unit. They are the given ones if no others
// explain more. It reports false if the reports are too few, or their microbatches too much alike.
func (f *Calibration) Best(linear, quadratic uint64) (bestLinear, bestQuadratic uint64, ok bool) {
	bestLinear, bestQuadratic, ok = f.withConstant()
	if !ok {
		bestLinear, bestQuadratic, ok = f.solve(f.xx, f.yy, f.xy, f.xt, f.yt)
	}
	if ok && f.R2(bestLinear, bestQuadratic) < f.R2(linear, quadratic) {
		return linear, quadratic, true
	}
	return bestLinear, bestQuadratic, ok
}

// withConstant solves with the constant c. It also reports false if the error of the linear coefficient is too large.
func (f *Calibration) withConstant() (linear, quadratic uint64, ok bool) {
	xx, yy, tt := f.xx-f.x*f.x, f.yy-f.y*f.y, f.tt-f.t*f.t
	xy, xt, yt := f.xy-f.x*f.y, f.xt-f.x*f.t, f.yt-f.y*f.t
	det := xx*yy - xy*xy
	if det <= 1e-9*xx*yy || xx <= 1e-12*f.xx {
		return 0, 0, false
	}
	a, b := (xt*yy-yt*xy)/det, (yt*xx-xt*xy)/det
	noise := max(0, tt-a*xt-b*yt) / f.weight
	if a*a*surely*surely*det < noise*yy {
		return 0, 0, false
	}
	return f.solve(xx, yy, xy, xt, yt)
}

// solve returns coefficients from the mean products.
func (f *Calibration) solve(xx, yy, xy, xt, yt float64) (linear, quadratic uint64, ok bool) {
	det := xx*yy - xy*xy
	if f.n < leastReports || det <= 1e-9*xx*yy {
		return 0, 0, false
	}
	a := (xt*yy - yt*xy) / det
	b := (yt*xx - xt*xy) / det
	switch {
	case a <= 0 && b <= 0:
		return 0, 0, false
	case a <= 0:
		return 0, scale, true
	case b <= 0 || a/b > mostRatio:
		return mostRatio * scale, scale, true
	}
	return uint64(math.Round(a / b * scale)), scale, true
}
