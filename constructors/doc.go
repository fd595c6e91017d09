// Package constructors builds: it turns one rank's part of a sealed plan and the samples' tokens into the tensors of a microbatch,
// straight into the memory they are served from. It decides nothing: equal parts and tokens give equal bytes.
package constructors
