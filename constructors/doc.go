// Package constructors turns one rank's part of a sealed plan and the segments' tokens into the tensors of a
// microbatch. It writes directly into the memory from which they are served. It decides nothing: equal parts and tokens
// give equal bytes.
package constructors
