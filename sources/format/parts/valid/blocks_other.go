//go:build !amd64

package valid

func hasBlocks() bool { return false }

func validBlocks(*byte, int) bool { panic("this processor validates one character at a time") }
