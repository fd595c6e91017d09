// Package pages gives memory in huge pages, where the kernel has them.
package pages

import "unsafe"

// pageBytes is the size of a huge page.
const pageBytes = 2 << 20

// Make returns n zero values of a type without pointers. It asks for huge pages if they fill one. Its memory may take
// up to two huge pages more than the values do, of which the process touches at most one.
func Make[T any](n int) []T {
	var one T
	bytes := uintptr(n) * unsafe.Sizeof(one)
	if bytes < pageBytes {
		return make([]T, n)
	}
	whole := (bytes + pageBytes - 1) &^ (pageBytes - 1)
	raw := make([]uint64, (whole+pageBytes)/8)
	first := unsafe.Add(unsafe.Pointer(&raw[0]), -uintptr(unsafe.Pointer(&raw[0]))%pageBytes)
	Huge(first, whole)
	return unsafe.Slice((*T)(first), n)
}
