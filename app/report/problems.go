package report

import (
	"errors"
	"fmt"
	"io"

	"millrace/app/dryrun"
	"millrace/app/exit"
)

// Problems writes all problems of a failed opening but the last, a line each, and returns the last with the exit status
// of a failure. It returns any other error as it is.
func Problems(w io.Writer, err error) error {
	var ps dryrun.Problems
	if !errors.As(err, &ps) {
		return err
	}
	for _, p := range ps[:len(ps)-1] {
		fmt.Fprintln(w, p)
	}
	return exit.Failure(ps[len(ps)-1])
}
