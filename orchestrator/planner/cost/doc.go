// Package cost predicts the cost of segments for a trainer, and weighs plans by it. All numbers are 64-bit fixed point.
//
// cost and model give the coefficients, weigher the cost of a segment of one step. weigh reports how long ranks wait
// for each other under a plan, bound how long they wait at least under any plan, and context how long context-parallel
// ranks wait.
package cost
