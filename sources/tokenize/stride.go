package tokenize

// strideBytes is the amount of work between two calls of tell.
const strideBytes = 1 << 20

// stride reports progress. Without it, a process that encodes an endless text would look stuck.
type stride struct {
	left int // bytes until the next call of tell
	tell func()
}

func (s *stride) went(bytes int) {
	if s.left -= bytes; s.left > 0 || s.tell == nil {
		return
	}
	s.left = strideBytes
	s.tell()
}
