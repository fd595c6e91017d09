package issue

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"millrace"
)

const (
	caName     = "ca"
	certSuffix = ".pem"
	keySuffix  = "-key"
	caFile     = caName + certSuffix
	caKeyFile  = caName + keySuffix + certSuffix
)

// openAuthority reads the authority of a directory, or makes it if neither of its files is there.
func openAuthority(r Request) (a *authority, made bool, err error) {
	cert, key := filepath.Join(r.Dir, caFile), filepath.Join(r.Dir, caKeyFile)
	missing := 0
	for _, path := range []string{cert, key} {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			missing++
		} else if err != nil {
			return nil, false, fmt.Errorf("look for the CA: %w", err)
		}
	}
	switch missing {
	case 1:
		return nil, false, millrace.Errorf(millrace.ErrInvalid, "%s has only one of %s and %s: add the other one, or "+
			"name another directory for a new CA", r.Dir, caFile, caKeyFile)
	case 2:
		a, err = makeAuthority(r, cert, key)
		return a, true, err
	}
	a, err = readAuthority(cert, key)
	if err == nil && r.Now.After(a.cert.NotAfter) {
		err = millrace.Errorf(millrace.ErrInvalid, "the CA in %s ended on %s: name another directory for a new CA, "+
			"and replace the certificates of all hosts", cert, a.cert.NotAfter.UTC().Format("2006-01-02"))
	}
	return a, false, err
}

func readAuthority(cert, key string) (*authority, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "read the CA in %s and %s: %w: name another directory for a "+
			"new CA", cert, key, err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA {
		return nil, millrace.Errorf(millrace.ErrInvalid, "%s is not the certificate of a CA: name another directory",
			cert)
	}
	return &authority{pair.Leaf, signer}, nil
}

func makeAuthority(r Request, cert, key string) (*authority, error) {
	template := &x509.Certificate{
		Subject: subjectOf("CA of a run"), NotBefore: r.Now.Add(-skew), NotAfter: r.Now.Add(caDays * day),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	signer, err := newKey()
	if err != nil {
		return nil, err
	}
	der, err := sign(template, template, signer.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("make the CA: %w", err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make the CA: %w", err)
	}
	if err := writeKey(key, signer); err != nil {
		return nil, err
	}
	return &authority{parsed, signer}, writeCertificate(cert, der)
}

func writeCertificate(path string, der []byte) error { return replace(path, "CERTIFICATE", der, 0o644) }

func writeKey(path string, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode the key %s: %w", path, err)
	}
	return replace(path, "PRIVATE KEY", der, 0o600)
}

// replace writes a PEM file in one step: a process that reads it sees the earlier content or all of the new one.
func replace(path, kind string, der []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	err = errors.Join(pem.Encode(f, &pem.Block{Type: kind, Bytes: der}), f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	return nil
}
