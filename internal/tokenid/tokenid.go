// Package tokenid has the bits of a token id that are no part of the id (docs/decisions/0018, 0021, 0024).
package tokenid

// Untrained is the bit of a token's id that leaves the token out of the loss. Ids are smaller than it. A batch has the
// id without the bit, and no label.
const Untrained uint32 = 1 << 31

// Begin are the bits of the first token of each of the two segments of a preference pair (docs/decisions/0021). Ids of
// documents with untrained tokens are smaller than either bit, so no other token has both.
const Begin = Untrained | 1<<30

// Start are the bits of the first token of each sequence inside a packed document but the first one
// (docs/decisions/0024). Ids of documents with untrained tokens are smaller than its bits, and Begin has another one.
const Start = Untrained | 1<<29

// Most is the highest id of a document with untrained tokens: no bit of it is one of these.
const Most = 1<<29 - 1
