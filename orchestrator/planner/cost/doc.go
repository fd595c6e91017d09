// Package cost predicts the cost of segments for a trainer, and weighs plans by it. All numbers are 64-bit fixed point.
//
// cost and model give the coefficients, weigher the cost of a segment of one step. weigh predicts the time that ranks
// wait for each other under a plan. bound gives the least such time under any plan. context predicts the waiting of
// context-parallel ranks.
package cost
