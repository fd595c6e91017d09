//go:build !linux

package prefetch

import "unsafe"

// Huge does nothing.
func Huge(unsafe.Pointer, uintptr) {}
