package progress

import "encoding/base64"

// Names for the tests in package progress_test.
const (
	CarriedNext = carriedNext
	SumBytes    = sumBytes
)

func CompactText() *base64.Encoding { return compactText() }
func Checksum(b []byte) []byte      { return checksum(b) }
