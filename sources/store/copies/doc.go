// Package copies keeps seekable copies of packed files that can only be read from their beginning.
//
// A copy has the unpacked bytes in zstd frames of 128 KiB each, and a table of the frames at its end. This is the
// seekable format of https://github.com/facebook/zstd/blob/dev/contrib/seekable_format, so `zstd -d` unpacks a copy. A
// copy appears under its name when it is whole. Every frame has a checksum.
package copies
