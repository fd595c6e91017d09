package sources

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/crypto/blake2b"

	"millrace"
)

// manifestFingerprint hashes the facts that decide a source's samples, without the seed of its order. It leaves out
// paths and counts.
func manifestFingerprint(m *millrace.Manifest, spec Spec) (d millrace.Digest) {
	h, err := blake2b.New(len(d), nil)
	if err != nil {
		return d // only a size or key out of range is an error
	}
	in := []byte("millrace manifest 1")
	in = appendText(in, settled(spec.Format))
	in = appendText(in, spec.Field.Text)
	if spec.Maker != nil {
		in = appendText(in, spec.Maker.Settings())
	}
	if spec.SkipMissing {
		in = appendText(in, "skip missing")
	}
	in = appendText(in, string(m.Shuffle))
	in = binary.LittleEndian.AppendUint64(in, uint64(spec.Limits.SampleBytes))
	in = binary.LittleEndian.AppendUint64(in, uint64(len(m.Shards)))
	for _, s := range m.Shards {
		in = appendText(in, s.Name)
		in = binary.LittleEndian.AppendUint64(in, uint64(s.Size))
		in = append(in, s.Digest[:]...)
		h.Write(in)
		in = in[:0]
	}
	h.Write(in)
	h.Sum(d[:0])
	return d
}

// Compare returns an error if a source differs from its pinned manifest. The error names the first file that differs,
// and wraps millrace.ErrMismatch.
func Compare(pinned, now *millrace.Manifest) error {
	if pinned.Fingerprint == now.Fingerprint {
		return nil
	}
	differ := func(format string, args ...any) error {
		return millrace.Errorf(millrace.ErrMismatch, "source %s is not the one the run began with: %s",
			pinned.Source, fmt.Sprintf(format, args...))
	}
	if pinned.Format != now.Format {
		return differ("its format was %s and is %s", pinned.Format, now.Format)
	}
	for i, j := 0, 0; i < len(pinned.Shards) || j < len(now.Shards); i, j = i+1, j+1 {
		switch {
		case j == len(now.Shards) || i < len(pinned.Shards) && pinned.Shards[i].Name < now.Shards[j].Name:
			return differ("file %s is missing (it was at %s)", pinned.Shards[i].Name, pinned.Shards[i].Path)
		case i == len(pinned.Shards) || pinned.Shards[i].Name > now.Shards[j].Name:
			return differ("file %s is new; put it under another source or start a new run", now.Shards[j].Path)
		}
		was, is := pinned.Shards[i], now.Shards[j]
		if was.Size != is.Size {
			return differ("file %s had %d bytes and has %d", is.Path, was.Size, is.Size)
		}
		if was.Digest != is.Digest {
			return differ("file %s changed its content (digest %s, was %s)", is.Path, is.Digest, was.Digest)
		}
	}
	if pinned.Shuffle == millrace.Blocks && now.Shuffle == millrace.Global {
		return differ("its shuffle was blocks and is global; to go on in blocks order, write `seekable_copies: false`")
	}
	if pinned.Shuffle != now.Shuffle {
		return differ("its shuffle was %s and is %s", pinned.Shuffle, now.Shuffle)
	}
	return differ("its text field or limits changed")
}
