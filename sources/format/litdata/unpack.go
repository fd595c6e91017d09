package litdata

import (
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// errFrame takes the place of the library's errors, which depend on the capacity of the memory that it is given.
var errFrame = errors.New("its zstd frame is damaged")

// unpacker unpacks frames of zstd. One goroutine uses it.
type unpacker struct{ decoder *zstd.Decoder }

// unpack appends the bytes of a packed frame to dst, at most `most`. It compares the size that the frame's head says
// before it takes the memory.
func (u *unpacker) unpack(dst, packed []byte, most int64) ([]byte, error) {
	var head zstd.Header
	if err := head.Decode(packed); err != nil {
		return dst, err
	}
	if head.HasFCS && head.FrameContentSize > uint64(most) {
		return dst, fmt.Errorf("it unpacks to %d bytes, more than %d", head.FrameContentSize, most)
	}
	if u.decoder == nil {
		var err error
		if u.decoder, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(mostFrame)); err != nil {
			return dst, err
		}
	}
	out, err := u.decoder.DecodeAll(packed, dst)
	switch {
	case err != nil:
		err = errFrame
	case int64(len(out)) > most:
		err = fmt.Errorf("it unpacks to %d bytes, more than %d", len(out), most)
	}
	return out, err
}

// itemUnpacker unpacks items that are packed one by one.
type itemUnpacker struct {
	unpacker
	limit int64 // bytes of an item
	plain []byte
}

// item returns an unpacked item, valid until the next call.
func (u *itemUnpacker) item(b []byte) (_ []byte, err error) {
	most := min(u.limit, int64(len(b))*mostRatio)
	if u.plain, err = u.unpack(u.plain[:0], b, most); err != nil {
		return nil, bad("it cannot be unpacked within sample_bytes, %d: %v", u.limit, err)
	}
	return u.plain, nil
}
