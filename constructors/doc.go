// Package constructors turns one rank's part of a sealed plan and the segments' tokens into the tensors of a
// microbatch. It writes directly into the memory that the trainer has mapped. Equal parts and tokens give equal bytes.
package constructors
