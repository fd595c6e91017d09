package tokenize

import "testing"

// BenchmarkAppend encodes a corpus of real documents. Cold is a fresh encoder, and the time includes making it. Warm is
// an encoder that has encoded the corpus before.
func BenchmarkAppend(b *testing.B) {
	documents := corpus(b, 8_000_000)
	size := 0
	for _, document := range documents {
		size += len(document)
	}
	ids := make([]uint32, 0, size)
	for _, name := range testEncodings() {
		e := load(b, name)
		b.Run(name+"/cold", func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				enc := e.NewEncoder()
				for _, document := range documents {
					ids = enc.Append(ids[:0], document)
				}
			}
		})
		b.Run(name+"/warm", func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			enc := e.NewEncoder()
			for _, document := range documents {
				ids = enc.Append(ids[:0], document)
			}
			for b.Loop() {
				for _, document := range documents {
					ids = enc.Append(ids[:0], document)
				}
			}
		})
	}
}

// BenchmarkLoad measures the start of a process.
func BenchmarkLoad(b *testing.B) {
	for _, name := range testEncodings() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Load(name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
