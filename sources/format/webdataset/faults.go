package webdataset

import (
	"errors"
	"fmt"

	"millrace"
	"millrace/sources"
)

// asMissing splits the reason of a group without its text from other errors.
func asMissing(err error) (missing, other error) {
	var m *sources.MissingError
	if errors.As(err, &m) {
		return err, nil
	}
	return nil, err
}

// asBad splits the reason of a bad record from errors of the file.
func asBad(err error) (reason, other error) {
	if errors.Is(err, millrace.ErrBadSample) {
		return err, nil
	}
	return nil, err
}

func bad(format string, args ...any) error {
	return millrace.Errorf(millrace.ErrBadSample, "%s", fmt.Sprintf(format, args...))
}
