package pages

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Huge asks the kernel for huge pages inside some fresh memory: random reads of a large table otherwise wait for
// the page table. If the kernel refuses, the memory stays as it is.
func Huge(memory unsafe.Pointer, bytes uintptr) {
	skipped := -uintptr(memory) % pageBytes
	if skipped+pageBytes > bytes {
		return
	}
	whole := (bytes - skipped) &^ (pageBytes - 1)
	_ = unix.Madvise(unsafe.Slice((*byte)(unsafe.Add(memory, skipped)), whole), unix.MADV_HUGEPAGE)
}
