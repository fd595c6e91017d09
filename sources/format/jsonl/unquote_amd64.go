package jsonl

import "golang.org/x/sys/cpu"

// hasBlocks reports whether the processor can copy strings in blocks. Both ways copy the same.
func hasBlocks() bool { return cpu.X86.HasAVX2 && cpu.X86.HasBMI1 && cpu.X86.HasBMI2 }

// unquoteBlocks copies as unquoteWords does, from the n bytes at in. It stops also when fewer than blockReach bytes are
// left. out has room for n and blockReach bytes more.
//
//go:noescape
func unquoteBlocks(out, in *byte, n int) (read, wrote int)
