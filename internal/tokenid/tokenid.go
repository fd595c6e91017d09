// Package tokenid has the bit of a token id that is no part of the id (docs/decisions/0018).
package tokenid

// Untrained is the bit of a token's id that leaves the token out of the loss. Ids are smaller than it. A batch has the
// id without the bit, and no label.
const Untrained uint32 = 1 << 31
