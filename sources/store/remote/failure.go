package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"millrace"
	"millrace/sources"
)

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// cause is the kind of a failure. It decides whether a request is tried again.
type cause uint8

const (
	outage   cause = iota // the store does not answer, or is overloaded: it may pass
	denied                // the credentials do not allow the request
	gone                  // there is no such object
	replaced              // the object has another version
	wrong                 // the store does not understand the request
)

// failure is the error of one request. Its text has no URL, header or credential.
type failure struct {
	cause  cause
	status int           // of HTTP; 0: no answer
	code   string        // of the store, as SlowDown; empty: none
	after  time.Duration // the store asks to wait so long; 0: it does not ask
	err    error         // without secrets; nil: status and code say all
}

// Error returns the store's answer.
func (f *failure) Error() string {
	var parts []string
	if f.status != 0 {
		parts = append(parts, fmt.Sprintf("the store answers %d %s", f.status, http.StatusText(f.status)))
	}
	if f.code != "" && f.status == 0 {
		parts = append(parts, "the store answers "+f.code)
	} else if f.code != "" {
		parts[0] += " (" + f.code + ")"
	}
	if f.err != nil {
		parts = append(parts, f.err.Error())
	}
	return strings.Join(parts, ": ")
}

// ofStatus returns the failure of an answer, nil if it is good.
func ofStatus(status int, code string, header http.Header) error {
	if status < 300 {
		return nil
	}
	f := &failure{cause: causeOf(status, code), status: status, code: code}
	f.after = waitOf(header.Get("Retry-After"))
	return f
}

// causeOf classifies a status and a code of S3, Azure or Google.
func causeOf(status int, code string) cause {
	switch code {
	case "SlowDown", "ServerBusy", "RequestTimeout", "InternalError", "ServiceUnavailable", "RequestTimeTooSkewed",
		"OperationTimedOut", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests":
		return outage
	case "NoSuchKey", "NoSuchBucket", "NotFound", "BlobNotFound", "ContainerNotFound":
		return gone
	case "PreconditionFailed", "ConditionNotMet", "InvalidRange":
		return replaced
	case "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken",
		"AuthenticationFailed", "AuthorizationFailure", "Forbidden", "Unauthorized":
		return denied
	}
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status >= 500, status == 0,
		status == http.StatusTooEarly:
		return outage
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return denied
	case status == http.StatusNotFound, status == http.StatusGone:
		return gone
	case status == http.StatusPreconditionFailed, status == http.StatusRequestedRangeNotSatisfiable:
		return replaced
	}
	return wrong
}

// mostAsked bounds the wait that a store may ask for.
const mostAsked = time.Minute

// waitOf reads a Retry-After header: seconds, or a date.
func waitOf(header string) time.Duration {
	if header == "" {
		return 0
	}
	wait := time.Duration(0)
	if seconds, err := strconv.ParseFloat(header, 64); err == nil {
		wait = time.Duration(seconds * float64(time.Second))
	} else if at, err := http.ParseTime(header); err == nil {
		wait = time.Until(at)
	}
	return min(max(wait, 0), mostAsked)
}

// ofTransport returns the failure of a request without an answer. It takes the URL out of the error: signed URLs are
// credentials.
func ofTransport(err error) error {
	var known *failure
	if errors.As(err, &known) {
		return known
	}
	var wrapped *url.Error
	for errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		return &failure{cause: wrong, err: fmt.Errorf("its certificate is not trusted (%v); name the authority that "+
			"signed its certificate in SSL_CERT_FILE", untrusted.Err)}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // an EOF would look like the end of the file
		return &failure{cause: outage, err: errors.New("the connection broke")}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return &failure{cause: outage, err: errors.New("the answer took too long")}
	}
	return &failure{cause: outage, err: errors.New(err.Error())} // no cause within decides how a file is read
}

// describe returns the error of a request for users: the class of its cause, the URL, and the cure.
func describe(what, url string, s store, err error) error {
	var f *failure
	if !errors.As(err, &f) {
		return fmt.Errorf("%s %s: %w", what, url, err)
	}
	switch f.cause {
	case denied:
		return classed(fs.ErrPermission, "%s %s: %v; allow these credentials to read it, set other ones (%s), "+
			"or set `storage: {anonymous: true}` if everybody may read it", what, url, f, s.credentials())
	case gone:
		return classed(fs.ErrNotExist, "%s %s: %v; check the bucket, the key and the endpoint", what, url, f)
	case replaced:
		return millrace.Errorf(millrace.ErrMismatch, "%s %s: the object was replaced since the run opened it (%v); "+
			"restore the version from before, or begin a new run with it", what, url, f)
	case wrong:
		return classed(fs.ErrInvalid, "%s %s: %v; check the bucket, and `storage:` with its endpoint and region", what,
			url, f)
	}
	return classed(sources.ErrUnavailable, "%s %s: %v", what, url, f)
}

// classError is an error whose class stays out of its text.
type classError struct {
	text  string
	class error
}

// Error returns the text.
func (e *classError) Error() string { return e.text }

// Unwrap returns the class.
func (e *classError) Unwrap() error { return e.class }

func classed(class error, format string, args ...any) error {
	return &classError{text: fmt.Sprintf(format, args...), class: class}
}
