package wire

import (
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

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

// sampled is an error about one document.
type sampled interface {
	Sample() (millrace.Ordinal, millrace.Quarantine)
}

// withSamples adds to a status the documents that an error and all its joined errors name.
func withSamples(st *status.Status, err error) *status.Status {
	var details []protoadapt.MessageV1
	for _, q := range collect(nil, err) {
		details = append(details, q)
	}
	if full, err := st.WithDetails(details...); err == nil {
		return full
	}
	return st
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

func samplesOf(st *status.Status) (out []*proto.Quarantine) {
	for _, d := range st.Details() {
		if q, ok := d.(*proto.Quarantine); ok {
			out = append(out, q)
		}
	}
	return out
}
