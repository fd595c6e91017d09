package millrace

import "errors"

// Sentinels that cross rooms; internal/wire maps them to gRPC codes.
var (
	// ErrFenced: the caller's term or attempt is older than one already seen; it must stop acting.
	ErrFenced = errors.New("fenced by a newer term")
	// ErrDamaged: a file is unreadable as a whole (footer, index, compressed stream, count).
	ErrDamaged = errors.New("damaged file")
	// ErrBadSample: one record cannot be decoded; it is quarantined or masked.
	ErrBadSample = errors.New("bad sample")
	// ErrMismatch: something that must be equal is not (a digest, a manifest, an identity).
	ErrMismatch = errors.New("mismatch")
	// ErrInvalid: wrong usage or an invalid mixture file.
	ErrInvalid = errors.New("invalid")
)
