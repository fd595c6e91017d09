package main

import (
	"errors"
	"strings"

	"millrace"
	"millrace/sources"
)

// verdict is the outcome of a case.
type verdict int

// The outcomes that the rules allow, and the one that they do not.
const (
	failed  verdict = iota // an error that names the file
	bad                    // records were found bad
	equal                  // all records are as they were
	changed                // other values in a file without checksums
	fewer                  // fewer records in a file that does not count them
	broken                 // a rule is broken
	verdicts
)

// String returns the verdict's column of the table.
func (v verdict) String() string {
	return [...]string{"named error", "records quarantined", "equal", "other values, no checksum",
		"fewer records, no count", "broken"}[v]
}

// judge returns the verdict of a case, and the reason if a rule is broken. whole are the records of the undamaged
// sample; isCut says that a file was shortened.
func (s *sample) judge(path string, isCut bool, whole, got []*record, err error) (verdict, string) {
	var rule fault
	var panicked *sources.PanicError
	switch {
	case errors.As(err, &rule):
		return broken, err.Error()
	case errors.As(err, &panicked):
		return broken, err.Error() + "\n" + string(panicked.Stack)
	case err != nil && !isAboutFiles(err):
		return broken, "the error is not of a damaged or wrong file: " + err.Error()
	case err != nil && !s.isIn(path, err):
		return broken, "the error does not name the file: " + err.Error()
	case err != nil:
		return failed, ""
	}
	return s.compare(isCut, whole, got)
}

// isAboutFiles reports whether an error is of a damaged, wrong or changed file.
func isAboutFiles(err error) bool {
	for _, class := range []error{millrace.ErrDamaged, millrace.ErrInvalid, millrace.ErrMismatch} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// isIn reports whether an error names the damaged file, or the shard that needs it.
func (s *sample) isIn(path string, err error) bool {
	if strings.Contains(err.Error(), path) {
		return true
	}
	for name := range s.files {
		if strings.Contains(err.Error(), "/"+name) {
			return true
		}
	}
	return false
}

// compare returns the verdict of records that were read without an error.
func (s *sample) compare(isCut bool, whole, got []*record) (verdict, string) {
	worse, other, more := 0, 0, 0
	for i, r := range got {
		switch {
		case i < len(whole) && r.equal(whole[i]):
		case r.why != "":
			worse++
		case i >= len(whole):
			more++
		default:
			other++
		}
	}
	lost := len(got) < len(whole)
	switch {
	case lost && s.guards.count && (s.guards.end || !isCut):
		return broken, "there are fewer records without an error, and the file counts them"
	case lost && isCut && s.guards.end:
		return broken, "a shortened file has fewer records without an error, and its end is marked"
	case other > 0 && s.guards.content:
		return broken, "a record changed without an error, and checksums cover it"
	case lost && worse == 0:
		return fewer, ""
	case worse > 0:
		return bad, ""
	case other+more > 0: // records behind the last one may be a copy of whole parts
		return changed, ""
	}
	return equal, ""
}
