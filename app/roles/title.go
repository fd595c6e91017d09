package roles

import (
	"os"
	"runtime/debug"
	"unsafe"
)

// The roles of a run. `ps` lists a loader under one of two words, which are equally long, because one overwrites the
// other.
const (
	OrchestratorRole = "orchestrator" // plans, journals and publishes
	LoaderRole       = "loader"       // reads stripes
	ShadowRole       = "shadow"       // stands by for loaders
	SidecarRole      = "sidecar"      // serves ranks
)

// title makes `ps` list this process under another role. The strings of os.Args are in the memory that the kernel shows
// to `ps`, so title overwrites their bytes. If that memory cannot be written, `ps` keeps the old word.
func title(word string) {
	for _, arg := range os.Args[1:] {
		if arg != LoaderRole && arg != ShadowRole {
			continue
		}
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() { _ = recover() }()
		copy(unsafe.Slice(unsafe.StringData(arg), len(arg)), word)
		return
	}
}
