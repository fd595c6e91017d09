package valid

import "golang.org/x/sys/cpu"

// hasBlocks reports whether the processor can validate blocks. Both ways give the same answers.
func hasBlocks() bool { return cpu.X86.HasAVX2 }

// validBlocks reports whether the n bytes from p on are the beginning of UTF-8: the last character may lack bytes. n is
// a positive multiple of blockBytes.
//
//go:noescape
func validBlocks(p *byte, n int) bool
