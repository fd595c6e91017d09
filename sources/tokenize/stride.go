package tokenize

// strideBytes is how much work is told of at once.
const strideBytes = 1 << 20

// stride tells of work that goes on: an endless text would otherwise look like no work at all.
type stride struct {
	left int // bytes until it is told again
	tell func()
}

func (s *stride) went(bytes int) {
	if s.left -= bytes; s.left > 0 || s.tell == nil {
		return
	}
	s.left = strideBytes
	s.tell()
}
