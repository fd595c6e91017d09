package issue

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace"
	"millrace/internal/secure"
)

func request(dir string, hosts ...string) Request {
	return Request{Dir: dir, Hosts: hosts, Roles: secure.Roles(), Days: 30, Now: time.Now()}
}

func load(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(content)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// verify checks a certificate as the other side of a connection does.
func verify(c, ca *x509.Certificate, host string, usage x509.ExtKeyUsage) error {
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	_, err := c.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

// A host accepts certificates of a machine whose clock is ahead of its own, and says when the clocks differ too much.
func TestClocksDiffer(t *testing.T) {
	for _, x := range []struct {
		ahead time.Duration
		want  string
	}{{10 * time.Minute, ""}, {59 * time.Minute, ""}, {61 * time.Minute, "correct the clock"}} {
		r := request(t.TempDir(), "a.example")
		r.Now = r.Now.Add(x.ahead)
		out, err := Issue(r)
		if err != nil {
			t.Fatal(err)
		}
		own := out.Certificates[0]
		_, err = secure.New(secure.Files{CA: out.CA, Cert: own.Cert, Key: own.Key}, nil)
		if (err != nil) != (x.want != "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v ahead: %v", x.ahead, err)
		}
		err = verify(load(t, own.Cert), load(t, out.CA), "a.example", x509.ExtKeyUsageServerAuth)
		if (err != nil) != (x.want != "") {
			t.Errorf("%v ahead: the other side says %v", x.ahead, err)
		}
	}
}

func TestCertificatesOfHosts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	out, err := Issue(request(dir, "a.example", "10.0.0.2", "::1"))
	if err != nil || !out.Made || len(out.Certificates) != 3 {
		t.Fatalf("%v: %+v", err, out)
	}
	ca := load(t, out.CA)
	for i, host := range []string{"a.example", "10.0.0.2", "::1"} {
		x := out.Certificates[i]
		c := load(t, x.Cert)
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			if err := verify(c, ca, host, usage); err != nil {
				t.Error(err)
			}
		}
		if err := verify(c, ca, "b.example", x509.ExtKeyUsageServerAuth); err == nil {
			t.Errorf("the certificate of %s is valid for b.example", host)
		}
		if got := secure.RolesOf(c); !slices.Equal(got, secure.Roles()) {
			t.Errorf("%s has the roles %v", host, got)
		}
		if c.IsCA || !c.NotAfter.Equal(x.Until.Truncate(time.Second)) || x.Until.After(time.Now().Add(30*day)) {
			t.Errorf("%s: CA %v, until %v", host, c.IsCA, c.NotAfter)
		}
		if _, err := secure.New(secure.Files{CA: out.CA, Cert: x.Cert, Key: x.Key}, nil); err != nil {
			t.Error(err)
		}
	}
	for name, want := range map[string]os.FileMode{
		"": 0o700, caKeyFile: 0o600, "a.example-key.pem": 0o600, "10.0.0.2-key.pem": 0o600, caFile: 0o644,
		"__1.pem": 0o644,
	} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, err, st.Mode())
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 8 {
		t.Errorf("%v: %d files", err, len(entries))
	}
}

// TestACertificateOfADomain is valid for the hosts of the domain, such as the pods of a Kubernetes namespace.
func TestACertificateOfADomain(t *testing.T) {
	out, err := Issue(request(filepath.Join(t.TempDir(), "certs"), "*.millrace.train.svc"))
	if err != nil {
		t.Fatal(err)
	}
	x, ca := out.Certificates[0], load(t, out.CA)
	if filepath.Base(x.Cert) != "any.millrace.train.svc.pem" {
		t.Error(x.Cert)
	}
	for host, valid := range map[string]bool{"loader-3.millrace.train.svc": true, "millrace.train.svc": false,
		"loader-3.millrace.other.svc": false, "a.loader-3.millrace.train.svc": false} {
		if err := verify(load(t, x.Cert), ca, host, x509.ExtKeyUsageServerAuth); (err == nil) != valid {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// TestAgain: a second call keeps the CA, and renews.
func TestAgain(t *testing.T) {
	dir := t.TempDir()
	first, err := Issue(request(dir, "a.example"))
	if err != nil {
		t.Fatal(err)
	}
	before := load(t, first.Certificates[0].Cert)
	second, err := Issue(request(dir, "b.example", "a.example"))
	if err != nil || second.Made {
		t.Fatalf("%v: %+v", err, second)
	}
	ca := load(t, first.CA)
	for _, x := range second.Certificates {
		if err := verify(load(t, x.Cert), ca, x.Name, x509.ExtKeyUsageServerAuth); err != nil {
			t.Error(err)
		}
	}
	if load(t, second.Certificates[1].Cert).SerialNumber.Cmp(before.SerialNumber) == 0 {
		t.Error("the certificate was not renewed")
	}
	operator := request(dir)
	operator.Name, operator.Roles = "alice", []secure.Role{secure.Operator}
	third, err := Issue(operator)
	if err != nil {
		t.Fatal(err)
	}
	c := load(t, third.Certificates[0].Cert)
	if got := secure.RolesOf(c); !slices.Equal(got, operator.Roles) || len(c.DNSNames)+len(c.IPAddresses) > 0 {
		t.Errorf("roles %v, names %v %v", got, c.DNSNames, c.IPAddresses)
	}
}

// TestEndOfTheAuthority: no certificate outlives the CA, and a CA that ended issues none.
func TestEndOfTheAuthority(t *testing.T) {
	r := request(t.TempDir(), "a.example")
	out, err := Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	r.Now = r.Now.Add((caDays - 10) * day)
	late, err := Issue(r)
	if err != nil || late.Certificates[0].Until.After(out.Until) {
		t.Errorf("%v: %v after %v", err, late.Certificates[0].Until, out.Until)
	}
	r.Now = r.Now.Add(20 * day)
	if _, err := Issue(r); !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), "the CA in") {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	good := t.TempDir()
	out, err := Issue(request(good, "a.example"))
	if err != nil {
		t.Fatal(err)
	}
	half, swapped := t.TempDir(), t.TempDir()
	for to, from := range map[string]string{
		filepath.Join(half, caFile):       out.CA,
		filepath.Join(swapped, caFile):    out.Certificates[0].Cert,
		filepath.Join(swapped, caKeyFile): out.Certificates[0].Key,
	} {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bad := request(good, "a.example")
	bad.Roles = []secure.Role{"king"}
	long := request(good, "a.example")
	long.Days = caDays + 1
	for want, r := range map[string]Request{
		"no host is named":                        request(good),
		"a.example:7100 has a port":               request(good, "a.example:7100"),
		`"../a" is neither`:                       request(good, "../a"),
		`"" is neither`:                           request(good, ""),
		`"*" is neither`:                          request(good, "*"),
		`"a.*.b" is neither`:                      request(good, "a.*.b"),
		"a certificate named ca would":            request(good, "ca"),
		"a certificate named a-key would":         request(good, "a-key"),
		"a.example is named twice":                request(good, "a.example", "a.example"),
		`there is no role "king": want some of [`: bad,
		"a certificate of 3651 days":              long,
		"has only one of ca.pem and ca-key.pem":   request(half, "a.example"),
		"is not the certificate of a CA":          request(swapped, "a.example"),
	} {
		if _, err := Issue(r); !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
