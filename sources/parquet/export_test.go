package parquet

// UnpackHadoop gives tests the codec that no current writer has.
func UnpackHadoop(packed []byte, size int) ([]byte, error) {
	return unpackHadoop(make([]byte, 0, size), packed, size)
}
