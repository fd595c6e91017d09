package seal

import "golang.org/x/sys/cpu"

// hasLanes reports whether the processor can hash in lanes. Which way hashes has no effect on a digest.
func hasLanes() bool { return cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ }

// compress hashes one block of each lane's message.
//
//go:noescape
func compress(s *lanes, blocks *[width][blockSize]byte)
