package prefetch

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const hugePage = 2 << 20

// Huge asks the kernel for huge pages inside some fresh memory: random reads of a large table otherwise wait for
// the page table. If the kernel refuses, the memory stays as it is.
func Huge(memory unsafe.Pointer, bytes uintptr) {
	skipped := -uintptr(memory) % hugePage
	if skipped+hugePage > bytes {
		return
	}
	whole := (bytes - skipped) &^ (hugePage - 1)
	_ = unix.Madvise(unsafe.Slice((*byte)(unsafe.Add(memory, skipped)), whole), unix.MADV_HUGEPAGE)
}
