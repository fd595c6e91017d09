// Package pack packs segments into bins: best-fit-decreasing over a pool, one segment a bin, concatenated, or in buckets of lengths.
//
// cut and bucket decide how much of the pool a window holds. pack is best-fit-decreasing, on a bitmap of residual capacities. All are pure
// functions of sizes; there is no floating point, and ties are settled by draw order.
package pack
