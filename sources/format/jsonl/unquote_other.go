//go:build !amd64

package jsonl

func hasBlocks() bool { return false }

func unquoteBlocks(_, _ *byte, _ int) (int, int) { panic("this processor copies strings in words") }
