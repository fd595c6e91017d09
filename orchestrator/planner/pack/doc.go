// Package pack packs segments into bins: by best-fit-decreasing over a pool, one segment a bin, concatenated, or by
// buckets of lengths.
//
// cut and bucket decide which segments of the pool a window holds. pack is best-fit-decreasing, on a bitmap of residual
// capacities. pool and topup fill bins up with subsets of the waiting segments, and mix keeps sources close to their
// shares. All are pure functions of sizes and sources. There is no floating point, and ties are settled by draw order.
package pack
