//go:build !amd64

package seal

func hasLanes() bool { return false }

func compress(*lanes, *[width][blockSize]byte) { panic("this processor hashes one message at a time") }
