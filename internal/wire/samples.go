package wire

import (
	"errors"
	"strings"

	"google.golang.org/grpc/codes"

	"millrace"
	"millrace/proto"
)

// maxSamples bounds the documents that one answer names. The answer to a later request names the rest.
const maxSamples = 1000

// BadSamples is the error of a reply that lacks documents because they could not be decoded. It wraps
// millrace.ErrBadSample.
type BadSamples struct {
	Samples []*proto.Quarantine // by ordinal
	text    string
}

// Error returns the loader's text.
func (e *BadSamples) Error() string { return e.text }

// Unwrap returns millrace.ErrBadSample.
func (e *BadSamples) Unwrap() error { return millrace.ErrBadSample }

// PartFailed returns the reason why a part of a fetch lacks rows.
func PartFailed(part int, err error) *proto.PartFailed {
	return &proto.PartFailed{
		Part: uint32(part), Code: uint32(code(err)), Text: shorten(err.Error()), Samples: collect(nil, err),
	}
}

// FromPartFailed returns the error of a part. If documents could not be decoded, it is a *BadSamples.
func FromPartFailed(f *proto.PartFailed) error {
	if len(f.Samples) > 0 {
		return &BadSamples{Samples: f.Samples, text: f.Text}
	}
	return marked(codes.Code(f.Code), f.Text, errors.New(f.Text))
}

// longestText is the longest text of an error between roles, in bytes. The error of many documents has a line for each.
const longestText = 8 << 10

// shorten cuts a text that is too long for a message.
func shorten(text string) string {
	if len(text) <= longestText {
		return text
	}
	return strings.ToValidUTF8(text[:longestText], "") + " …"
}

// sampled is an error about one document.
type sampled interface {
	Sample() (millrace.Ordinal, millrace.Quarantine)
}

func collect(to []*proto.Quarantine, err error) []*proto.Quarantine {
	if len(to) == maxSamples {
		return to
	}
	switch e := err.(type) {
	case sampled:
		ordinal, q := e.Sample()
		return append(to, &proto.Quarantine{
			Source: q.Source, Id: q.ID, Offset: q.Offset, Reason: q.Reason, Ordinal: uint64(ordinal),
		})
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			to = collect(to, part)
		}
	case interface{ Unwrap() error }:
		return collect(to, e.Unwrap())
	}
	return to
}
