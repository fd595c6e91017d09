package parquet

import (
	"unsafe"

	"millrace/sources"
)

// UnpackHadoop gives tests the codec that no current writer has.
func UnpackHadoop(packed []byte, size int) ([]byte, error) {
	return unpackHadoop(make([]byte, 0, size), packed, size)
}

// KnownMemory returns the bytes of the pages and pieces of a shard's text that are known now.
func KnownMemory(s sources.Shard) (n int64) {
	for _, p := range s.(*shard).text.pages {
		if p == nil {
			continue
		}
		refs := p.data
		if p.dictionary != nil {
			refs = append([]pageRef{*p.dictionary}, refs...)
		}
		for i := range refs {
			n += int64(unsafe.Sizeof(refs[i]))
			if refs[i].pieces != nil {
				n += int64(cap(refs[i].pieces.list)) * int64(unsafe.Sizeof(piece{}))
			}
		}
	}
	return n
}
