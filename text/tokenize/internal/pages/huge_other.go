//go:build !linux

package pages

import "unsafe"

// Huge does nothing.
func Huge(unsafe.Pointer, uintptr) {}
