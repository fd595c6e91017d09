package main

import (
	"os"
	"runtime/debug"
	"unsafe"
)

// The roles of a member, as `ps` lists them. Both words are equally long: one is written over the other.
const (
	loaderWord = "loader"
	shadowWord = "shadow"
)

// title makes `ps` list this process under another role. The strings of os.Args lie in the memory that the kernel started the process
// with and shows to `ps`, so their bytes are overwritten in place; where that memory may not be written, `ps` goes on with what it was.
func title(word string) {
	for _, arg := range os.Args[1:] {
		if arg != loaderWord && arg != shadowWord {
			continue
		}
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() { _ = recover() }()
		copy(unsafe.Slice(unsafe.StringData(arg), len(arg)), word)
		return
	}
}
