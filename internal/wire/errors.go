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

// code returns the code of an error's sentinel.
func code(err error) codes.Code {
	for _, row := range table {
		if errors.Is(err, row.err) {
			return row.code
		}
	}
	return codes.Unknown
}

// ToStatus returns an error with the code of its sentinel; nil stays nil.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	return status.Error(code(err), err.Error())
}

// FromStatus marks a received error with the sentinel of its code.
func FromStatus(err error) error {
	st, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	return marked(st.Code(), st.Message(), err)
}

// marked returns an error with the sentinel of a code, or other if the code has none.
func marked(c codes.Code, text string, other error) error {
	for _, row := range table {
		if c == row.code {
			return millrace.Mark(errors.New(text), row.err)
		}
	}
	return other
}
