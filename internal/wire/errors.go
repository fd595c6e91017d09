package wire

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace"
)

// table maps sentinels to codes, in both directions.
var table = []struct {
	err  error
	code codes.Code
}{
	{millrace.ErrFenced, codes.FailedPrecondition},
	{millrace.ErrBadSample, codes.OutOfRange},
	{millrace.ErrDamaged, codes.DataLoss},
	{millrace.ErrMismatch, codes.Aborted},
	{millrace.ErrInvalid, codes.InvalidArgument},
	{context.Canceled, codes.Canceled},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
}

// ToStatus returns an error with the code of its sentinel; nil stays nil.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	for _, row := range table {
		if errors.Is(err, row.err) {
			return withSamples(status.New(row.code, err.Error()), err).Err()
		}
	}
	return status.Error(codes.Unknown, err.Error())
}

// FromStatus marks a received error with the sentinel of its code.
func FromStatus(err error) error {
	st, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	if samples := samplesOf(st); len(samples) > 0 {
		return &BadSamples{Samples: samples, text: st.Message()}
	}
	for _, row := range table {
		if st.Code() == row.code {
			return millrace.Mark(errors.New(st.Message()), row.err)
		}
	}
	return err
}
