// Package issue makes the certificates of a run: an authority of its own, and a certificate for each host or person.
package issue

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"millrace"
	"millrace/internal/secure"
)

const (
	caDays = 3650
	day    = 24 * time.Hour
	// anyHost begins the name of a certificate for all hosts of a domain, such as the pods of a namespace.
	anyHost = "*."
	// skew is the difference of two hosts' clocks that a fresh certificate bears.
	skew = time.Hour
)

// Request asks for certificates in a directory.
type Request struct {
	Dir   string
	Hosts []string // DNS names, *.DOMAIN or IP addresses, each with a certificate of its own
	Name  string   // of a person or program without a host; empty: none
	Roles []secure.Role
	Days  int // for which the certificates are valid, unless the authority ends before
	Now   time.Time
}

// Certificate is an issued certificate.
type Certificate struct {
	Name  string        `json:"name"`
	Cert  string        `json:"cert"` // path
	Key   string        `json:"key"`  // path
	Roles []secure.Role `json:"roles"`
	Until time.Time     `json:"until"`
}

// Result lists the files of a request.
type Result struct {
	CA           string        `json:"ca"` // path
	Made         bool          `json:"made_ca"`
	Until        time.Time     `json:"ca_until"`
	Certificates []Certificate `json:"certificates"`
}

// Issue makes the certificates of a request. If the directory has no authority, Issue makes it. It never replaces an
// authority. It replaces a certificate of the same name: that is a renewal.
func Issue(r Request) (*Result, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the certificates: %w", err)
	}
	a, made, err := openAuthority(r)
	if err != nil {
		return nil, err
	}
	out := &Result{CA: filepath.Join(r.Dir, caFile), Made: made, Until: a.cert.NotAfter}
	for _, host := range r.Hosts {
		c, err := a.issue(r, host, true)
		if err != nil {
			return nil, err
		}
		out.Certificates = append(out.Certificates, c)
	}
	if r.Name != "" {
		c, err := a.issue(r, r.Name, false)
		if err != nil {
			return nil, err
		}
		out.Certificates = append(out.Certificates, c)
	}
	return out, nil
}

func (r *Request) validate() error {
	if len(r.Hosts) == 0 && r.Name == "" {
		return millrace.Errorf(millrace.ErrInvalid, "no host is named: write --hosts a.example,10.0.0.2, or --name "+
			"NAME")
	}
	if r.Days < 1 || r.Days > caDays {
		return millrace.Errorf(millrace.ErrInvalid, "a certificate of %d days: want 1 to %d", r.Days, caDays)
	}
	all, seen := slices.Clone(r.Hosts), map[string]bool{}
	if r.Name != "" {
		all = append(all, r.Name)
	}
	for _, name := range all {
		file := fileName(name)
		if err := checkName(name); err != nil {
			return err
		}
		if seen[file] {
			return millrace.Errorf(millrace.ErrInvalid, "%s is named twice: its file is %s.pem both times", name, file)
		}
		seen[file] = true
	}
	for _, role := range r.Roles {
		if !slices.Contains(secure.Roles(), role) {
			return millrace.Errorf(millrace.ErrInvalid, "there is no role %q: want some of %v", role, secure.Roles())
		}
	}
	return nil
}

// checkName refuses names that are no host, and those whose files would have the name of others.
func checkName(name string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"
	if net.ParseIP(name) != nil {
		return nil
	}
	if host, _, err := net.SplitHostPort(name); err == nil {
		return millrace.Errorf(millrace.ErrInvalid, "%s has a port, and a certificate is for a host: write %s", name,
			host)
	}
	name = strings.TrimPrefix(name, anyHost) // all hosts of a domain
	if strings.Trim(name, letters) != "" || strings.Trim(name, ".-_") != name || name == "" {
		return millrace.Errorf(millrace.ErrInvalid, "%q is neither a host's name nor an IP address: write one as in "+
			"a.example or 10.0.0.2", name)
	}
	if name == caName || strings.HasSuffix(name, keySuffix) {
		return millrace.Errorf(millrace.ErrInvalid, "a certificate named %s would get the name of another file: "+
			"choose another name", name)
	}
	return nil
}

// fileName returns the name of a host's files without their ends. A colon is not welcome in all file systems.
func fileName(host string) string {
	if domain, ok := strings.CutPrefix(host, anyHost); ok {
		return "any." + domain
	}
	return strings.ReplaceAll(host, ":", "_")
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// issue makes a certificate and its key, and writes both.
func (a *authority) issue(r Request, name string, isHost bool) (Certificate, error) {
	until := r.Now.Add(time.Duration(r.Days) * day)
	if until.After(a.cert.NotAfter) {
		until = a.cert.NotAfter
	}
	template := &x509.Certificate{
		Subject: subjectOf(name), NotBefore: r.Now.Add(-skew), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, role := range r.Roles {
		template.URIs = append(template.URIs, role.URI())
	}
	if ip := net.ParseIP(name); isHost && ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else if isHost {
		template.DNSNames = []string{name}
	}
	key, err := newKey()
	if err != nil {
		return Certificate{}, err
	}
	der, err := sign(template, a.cert, key.Public(), a.key)
	if err != nil {
		return Certificate{}, fmt.Errorf("issue a certificate for %s: %w", name, err)
	}
	base := filepath.Join(r.Dir, fileName(name))
	c := Certificate{Name: name, Cert: base + certSuffix, Key: base + keySuffix + certSuffix, Roles: r.Roles,
		Until: until}
	if err := writeKey(c.Key, key); err != nil {
		return c, err
	}
	return c, writeCertificate(c.Cert, der)
}

func subjectOf(name string) pkix.Name {
	return pkix.Name{Organization: []string{"millrace"}, CommonName: name}
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

// sign gives a certificate a random number and signs it.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, by crypto.Signer) ([]byte, error) {
	var err error
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, err
	}
	return x509.CreateCertificate(rand.Reader, template, parent, public, by)
}
