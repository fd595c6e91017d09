package sources

import (
	"encoding/binary"
	"fmt"
	"io"

	"golang.org/x/crypto/blake2b"

	"millrace"
)

// digestEnds is how much of each end of a file its digest covers.
const digestEnds = 1 << 20

// shardDigest hashes size, first and last MiB of a shard's file and of its companions; deep hashes every byte.
func shardDigest(fs FS, format Format, path string, deep bool) (size int64, d millrace.Digest, err error) {
	h, err := blake2b.New(len(d), nil)
	if err != nil {
		return 0, d, fmt.Errorf("digest %s: %w", path, err)
	}
	paths := []string{path}
	if c, ok := format.(Companions); ok {
		paths = append(paths, c.Companions(path)...)
	}
	for i, p := range paths {
		n, err := digestFile(h, fs, p, deep)
		if err != nil {
			return 0, d, err
		}
		if i == 0 {
			size = n
		}
	}
	h.Sum(d[:0])
	return size, d, nil
}

func digestFile(h io.Writer, fs FS, path string, deep bool) (int64, error) {
	f, err := fs.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	size := f.Size()
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(size)))
	if deep {
		if _, err := io.CopyBuffer(h, NewReader(f, 0, size), make([]byte, digestEnds)); err != nil {
			return 0, fmt.Errorf("digest %s: %w", path, err)
		}
		return size, nil
	}
	end := make([]byte, min(size, digestEnds))
	for _, off := range []int64{0, size - int64(len(end))} {
		if err := ReadFull(f, end, off); err != nil {
			return 0, fmt.Errorf("digest %s: %w", path, err)
		}
		h.Write(end)
	}
	return size, nil
}

// manifestFingerprint hashes what decides a source's samples apart from its order's seed. Paths and counts are no part of it.
func manifestFingerprint(m *millrace.Manifest, spec Spec) millrace.Digest {
	in := []byte("millrace manifest 1")
	in = appendText(in, m.Format)
	in = appendText(in, spec.Field.Text)
	in = appendText(in, string(m.Shuffle))
	in = binary.LittleEndian.AppendUint64(in, uint64(spec.Limits.SampleBytes))
	in = binary.LittleEndian.AppendUint64(in, uint64(len(m.Shards)))
	for _, s := range m.Shards {
		in = appendText(in, s.Name)
		in = binary.LittleEndian.AppendUint64(in, uint64(s.Size))
		in = append(in, s.Digest[:]...)
	}
	return digest128(in)
}

// Compare tells what of a source is not as it was pinned, naming the first file that differs; the error wraps
// millrace.ErrMismatch.
func Compare(pinned, now *millrace.Manifest) error {
	if pinned.Fingerprint == now.Fingerprint {
		return nil
	}
	differ := func(format string, args ...any) error {
		return millrace.Errorf(millrace.ErrMismatch, "source %s is not the one the run began with: %s", pinned.Source, fmt.Sprintf(format, args...))
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
	if pinned.Shuffle != now.Shuffle {
		return differ("its shuffle was %s and is %s", pinned.Shuffle, now.Shuffle)
	}
	return differ("its text field or limits changed")
}
