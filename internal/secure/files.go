package secure

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"millrace"
)

// Files are the paths of PEM files: the authorities that are trusted, this process's certificate, and its key.
type Files struct{ CA, Cert, Key string }

// maxFile is the largest PEM file in bytes.
const maxFile = 1 << 20

// identity is the content of the files.
type identity struct {
	authorities *x509.CertPool
	certificate tls.Certificate
}

// store returns the newest usable content of the files.
type store struct {
	files Files
	warn  func(text string)

	mu     sync.Mutex
	loaded [3][]byte // content of the files at the last try
	now    *identity // of the last try that succeeded
}

// current reads the files, and parses them if they have changed since the last call. If they are damaged, or if they do
// not belong together, it returns the earlier content. It fails only if there was none.
func (s *store) current() (*identity, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	content, err := s.files.read()
	switch {
	case err == nil && s.now != nil && equal(content, s.loaded):
		return s.now, nil
	case err == nil:
		s.loaded = content
		var id *identity
		if id, err = parse(s.files, content, time.Now()); err == nil {
			s.now = id
			return id, nil
		}
	}
	if s.now == nil {
		return nil, err
	}
	s.warn("the certificate that was loaded before stays in use: " + err.Error())
	return s.now, nil
}

func equal(a, b [3][]byte) bool {
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// read returns the content of ca, cert and key.
func (f Files) read() (out [3][]byte, err error) {
	if f.CA == "" || f.Cert == "" || f.Key == "" {
		return out, millrace.Errorf(millrace.ErrInvalid,
			"tls needs the paths of ca, cert and key: `millrace certs init` makes these files")
	}
	for i, path := range []string{f.CA, f.Cert, f.Key} {
		if out[i], err = readFile(path); err != nil {
			return out, millrace.Errorf(millrace.ErrInvalid, "read tls file: %w", err)
		}
	}
	return out, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes: name a PEM file", path, maxFile)
	}
	return content, err
}

// parse checks that a certificate belongs to its key, and that the authorities vouch for it at this time.
func parse(f Files, content [3][]byte, now time.Time) (*identity, error) {
	out := &identity{authorities: x509.NewCertPool()}
	if !out.authorities.AppendCertsFromPEM(content[0]) {
		return nil, millrace.Errorf(millrace.ErrInvalid, "%s has no certificate in PEM form: name the CA's file", f.CA)
	}
	var err error
	if out.certificate, err = tls.X509KeyPair(content[1], content[2]); err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid,
			"%s and %s are no certificate with its key (%w): make both again", f.Cert, f.Key, err)
	}
	leaf, between := out.certificate.Leaf, x509.NewCertPool()
	for _, der := range out.certificate.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(c)
		}
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: out.authorities, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "%s: this host's own certificate %s", f.Cert,
			fault(leaf, err, f.CA))
	}
	return out, nil
}

// fault returns the reason why a certificate is refused, as the end of a sentence about it, with the cure.
func fault(c *x509.Certificate, err error, ca string) string {
	var (
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		name    x509.HostnameError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("%s is valid from %s to %s, and it is %s now: renew it with `millrace certs init`, or "+
			"correct the clock", subject(c), day(c.NotBefore), day(c.NotAfter), day(time.Now()))
	case errors.As(err, &unknown):
		return fmt.Sprintf("%s comes from another CA than those in %s: make it with the CA of the run", subject(c), ca)
	case errors.As(err, &name):
		return fmt.Sprintf("%s does not name %s, but %s: make it with `millrace certs init --hosts %s`, or use one of "+
			"its names", subject(c), name.Host, names(c), name.Host)
	}
	return fmt.Sprintf("%s is refused: %v: make it with `millrace certs init`", subject(c), err)
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

func subject(c *x509.Certificate) string { return `"` + c.Subject.String() + `"` }

// names returns the hosts of a certificate.
func names(c *x509.Certificate) string {
	all := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) == 0 {
		return "no host"
	}
	return fmt.Sprint(all)
}
