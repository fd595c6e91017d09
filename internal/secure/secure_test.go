package secure_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace/internal/seam"
	"millrace/internal/secure"
	"millrace/internal/secure/issue"
	"millrace/proto"
)

const patience = 20 * time.Second

// ca is a directory with a CA.
type ca struct {
	t   *testing.T
	dir string
	now time.Time // at which certificates are made
}

func newCA(t *testing.T) *ca { return &ca{t, t.TempDir(), time.Now()} }

// files makes a certificate with its files in a directory of their own.
func (c *ca) files(host string, roles ...secure.Role) secure.Files {
	c.t.Helper()
	out, err := issue.Issue(issue.Request{Dir: c.dir, Hosts: []string{host}, Roles: roles, Days: 1, Now: c.now})
	if err != nil {
		c.t.Fatal(err)
	}
	dir := c.t.TempDir()
	x := out.Certificates[0]
	f := secure.Files{CA: filepath.Join(dir, "ca"), Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
	copyFiles(c.t, secure.Files{CA: out.CA, Cert: x.Cert, Key: x.Key}, f)
	return f
}

func copyFiles(t *testing.T, from, to secure.Files) {
	t.Helper()
	for a, b := range map[string]string{from.CA: to.CA, from.Cert: to.Cert, from.Key: to.Key} {
		content, err := os.ReadFile(a)
		if err == nil {
			err = os.WriteFile(b, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// logged collects log lines.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) count(want string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), want)
}

// await waits until the log has a text once.
func (l *logged) await(t *testing.T, want string) {
	t.Helper()
	for begin := time.Now(); l.count(want) == 0 && time.Since(begin) < patience; {
		time.Sleep(5 * time.Millisecond)
	}
	if n := l.count(want); n != 1 {
		t.Errorf("%q is logged %d times in\n%s", want, n, l.text.String())
	}
}

func credentials(t *testing.T, f secure.Files) (*secure.Credentials, *logged) {
	t.Helper()
	log := &logged{}
	c, err := secure.New(f, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return c, log
}

// orchestrator answers calls that pass the check of roles.
type orchestrator struct {
	proto.UnimplementedOrchestratorServer
	served chan struct{} // has an element for each open stream that reads
	ended  func()        // called at the end of each stream; nil: nothing is
}

func (o *orchestrator) Status(context.Context, *proto.StatusRequest) (*proto.StatusReply, error) {
	return &proto.StatusReply{}, nil
}

// Serve reads until the stream ends.
func (o *orchestrator) Serve(s proto.Orchestrator_ServeServer) error {
	o.served <- struct{}{}
	for {
		if _, err := s.Recv(); err != nil {
			if o.ended != nil {
				o.ended()
			}
			return err
		}
	}
}

// serve runs an orchestrator at an address, and returns the address to dial.
func serve(t *testing.T, c *secure.Credentials, address string) (string, *orchestrator) {
	t.Helper()
	l, address, err := c.Listen(seam.SystemNet{}, address)
	if err != nil {
		t.Fatal(err)
	}
	server, o := grpc.NewServer(c.Server()...), &orchestrator{served: make(chan struct{}, 8)}
	proto.RegisterOrchestratorServer(server, o)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }() // the cleanup waits for it
	t.Cleanup(func() { server.Stop(); <-done })
	return address, o
}

func client(t *testing.T, c *secure.Credentials, address string) proto.OrchestratorClient {
	t.Helper()
	conn, err := grpc.NewClient(secure.Target, c.Client(seam.SystemNet{}, address, secure.Orchestrator)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return proto.NewOrchestratorClient(conn)
}

// ask makes one call.
func ask(t *testing.T, c proto.OrchestratorClient) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := c.Status(ctx, &proto.StatusRequest{})
	return err
}

func refused(t *testing.T, err error, code codes.Code, parts ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("want %v: %v", code, err)
	}
	for _, want := range parts {
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), `\"`, `"`), want) {
			t.Errorf("want %q in: %v", want, err)
		}
	}
}

func TestBothSidesProveThemselves(t *testing.T) {
	ca := newCA(t)
	server, log := credentials(t, ca.files("localhost", secure.Roles()...))
	address, _ := serve(t, server, "localhost:0")
	for _, role := range secure.Roles() {
		c, _ := credentials(t, ca.files("b.example", role))
		if err := ask(t, client(t, c, address)); err != nil {
			t.Errorf("%s: %v", role, err)
		}
	}
	if n := log.count("\n"); n > 0 {
		t.Errorf("%d warnings: %s", n, log.text.String())
	}
}

// TestRolesOfCallers: a certificate may call the methods of its roles alone.
func TestRolesOfCallers(t *testing.T) {
	ca := newCA(t)
	server, serverLog := credentials(t, ca.files("localhost", secure.Orchestrator))
	address, _ := serve(t, server, "localhost:0")
	loader, log := credentials(t, ca.files("b.example", secure.Loader))
	c := client(t, loader, address)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	want := `/Mix: certificate "CN=b.example,O=millrace" has the roles loader, and role operator is needed`
	for range 3 {
		_, err := c.Mix(ctx, &proto.MixRequest{})
		refused(t, err, codes.PermissionDenied, want)
	}
	log.await(t, `has the roles loader, and role operator is needed`)
	serverLog.await(t, `has the roles loader, and role operator is needed`)
	stream, err := c.Serve(ctx)
	if err == nil {
		_, err = stream.Recv()
	}
	refused(t, err, codes.PermissionDenied, "/Serve: certificate", "role sidecar is needed")
	log.await(t, "role sidecar is needed")
	none, _ := credentials(t, ca.files("c.example"))
	refused(t, ask(t, client(t, none, address)), codes.PermissionDenied, "has the roles none",
		"role operator or orchestrator or loader or sidecar is needed")
}

// TestTheServerIsRefused: a dialler refuses a server that cannot prove its name, its CA or its role, and says why.
func TestTheServerIsRefused(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	mine, log := credentials(t, ca.files("b.example", secure.Sidecar))
	elsewhere := ca.files("a.example", secure.Roles()...)
	wrong, stranger := ca.files("localhost", secure.Loader, secure.Sidecar), other.files("localhost", secure.Roles()...)
	for want, f := range map[string]secure.Files{
		`its certificate "CN=a.example,O=millrace" does not name localhost, but [a.example]`: elsewhere,
		`comes from another CA than those in`:                                                stranger,
		`has the roles loader, sidecar, and role orchestrator is needed`:                     wrong,
	} {
		server, _ := credentials(t, f)
		address, _ := serve(t, server, "localhost:0")
		refused(t, ask(t, client(t, mine, address)), codes.Unavailable, want)
		log.await(t, strings.ReplaceAll(want, `"`, `\"`))
	}
	ca.now = ca.now.Add(-48 * time.Hour)
	old := raw(t, ca.files("localhost", secure.Roles()...))
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = tls.Server(c, old).Handshake()
			c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	refused(t, ask(t, client(t, mine, net.JoinHostPort("localhost", port))), codes.Unavailable,
		`"CN=localhost,O=millrace" is valid from `, "renew it with `millrace certs init`")
}

// raw returns settings of TLS that check nothing of their own.
func raw(t *testing.T, f secure.Files) *tls.Config {
	t.Helper()
	out := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			t.Fatal(err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out
}

// TestTheCallerIsRefused: a server refuses strangers, and its log says why.
func TestTheCallerIsRefused(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	server, log := credentials(t, ca.files("localhost", secure.Roles()...))
	address, _ := serve(t, server, "localhost:0")
	ca.now = ca.now.Add(-48 * time.Hour)
	expired := raw(t, ca.files("b.example", secure.Roles()...))
	old := raw(t, ca.files("c.example", secure.Roles()...))
	old.MaxVersion = tls.VersionTLS12
	for _, x := range []struct {
		alert, want string
		cfg         *tls.Config
	}{
		{"certificate required", "it shows no certificate: on its side, set tls: {ca, cert, key}",
			raw(t, secure.Files{})},
		{"unknown certificate authority", `its certificate \"CN=b.example,O=millrace\" comes from another CA`,
			raw(t, other.files("b.example", secure.Roles()...))},
		{"expired certificate", `its certificate \"CN=b.example,O=millrace\" is valid from `, expired},
		{"protocol version not supported", "it does not speak TLS 1.3, which is needed", old},
	} {
		conn, err := tls.Dial("tcp", address, x.cfg)
		if err == nil {
			_, err = io.WriteString(conn, strings.Repeat("preface", 1000))
			if err == nil {
				_, err = conn.Read(make([]byte, 1))
			}
			conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), x.alert) {
			t.Errorf("want the alert %q: %v", x.alert, err)
		}
		log.await(t, x.want)
	}
	plain, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := io.WriteString(plain, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	log.await(t, "it speaks no TLS: on its side, set tls")
	// A process of this program says in its own log that it was refused.
	stranger, strangerLog := credentials(t, mixed(t, other, ca))
	refused(t, ask(t, client(t, stranger, address)), codes.Unavailable)
	strangerLog.await(t, `it refuses the certificate \"CN=s.example,O=millrace\"`)
}

// mixed returns files that trust two authorities, with a certificate of the first.
func mixed(t *testing.T, own, also *ca) secure.Files {
	t.Helper()
	f := own.files("s.example", secure.Roles()...)
	more, err := os.ReadFile(filepath.Join(also.dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(f.CA, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = file.Write(more)
	}
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	return f
}

// TestOwnFiles: bad files are refused at the start, with a reason.
func TestOwnFiles(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	a, b := ca.files("a.example", secure.Loader), other.files("a.example", secure.Loader)
	ca.now = ca.now.Add(-48 * time.Hour)
	for want, f := range map[string]secure.Files{
		"tls needs the paths of ca, cert and key": {},
		"no such file":                    {CA: a.CA, Cert: a.Cert, Key: a.Key + "x"},
		"are no certificate with its key": {CA: a.CA, Cert: a.Cert, Key: b.Key},
		"has no certificate in PEM form":  {CA: a.Key, Cert: a.Cert, Key: a.Key},
		`own certificate "CN=a.example,O=millrace" comes from another CA`: {CA: b.CA, Cert: a.Cert, Key: a.Key},
		`own certificate "CN=old.example,O=millrace" is valid from `:      ca.files("old.example", secure.Loader),
		"has more than 1048576 bytes: name a PEM file":                    {CA: large(t), Cert: a.Cert, Key: a.Key},
	} {
		if _, err := secure.New(f, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

func large(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(path, make([]byte, 1<<20+1), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRotation: open connections go on, new ones use the renewed files, and damaged files change nothing.
func TestRotation(t *testing.T) {
	old, next := newCA(t), newCA(t)
	files := old.files("localhost", secure.Roles()...)
	server, log := credentials(t, files)
	address, _ := serve(t, server, "localhost:0")
	before, _ := credentials(t, old.files("b.example", secure.Sidecar))
	open := client(t, before, address)
	if err := ask(t, open); err != nil {
		t.Fatal(err)
	}
	renewed := old.files("localhost", secure.Roles()...)
	copyFiles(t, renewed, files)
	if err := ask(t, client(t, before, address)); err != nil || serial(t, address) != certificateSerial(t, renewed) {
		t.Errorf("a renewed certificate is not used: %v", err)
	}
	if err := os.WriteFile(files.Cert, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := ask(t, client(t, before, address)); err != nil {
			t.Errorf("after damage: %v", err)
		}
	}
	log.await(t, "the certificate that was loaded before stays in use: ")
	copyFiles(t, next.files("localhost", secure.Roles()...), files)
	after, _ := credentials(t, next.files("b.example", secure.Sidecar))
	if err := ask(t, client(t, after, address)); err != nil {
		t.Errorf("with another CA: %v", err)
	}
	refused(t, ask(t, client(t, before, address)), codes.Unavailable, "comes from another CA")
	if err := ask(t, open); err != nil {
		t.Errorf("the open connection: %v", err)
	}
}

// serial returns the number of the certificate that a server shows.
func serial(t *testing.T, address string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

func certificateSerial(t *testing.T, f secure.Files) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return leaf.SerialNumber.String()
}

// TestWithoutCredentials: Unix sockets and loopback work without TLS, other addresses do not.
func TestWithoutCredentials(t *testing.T) {
	var none *secure.Credentials
	for _, address := range []string{filepath.Join(t.TempDir(), "s"), "127.0.0.1:0"} {
		dial, _ := serve(t, none, address)
		if err := ask(t, client(t, none, dial)); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		if l, _, err := none.Listen(seam.SystemNet{}, address); err == nil {
			l.Close()
			t.Errorf("listening on %s", address)
		} else if !strings.Contains(err.Error(), "write it before the port") {
			t.Error(err)
		}
	}
}

// TestOneServerTwoSockets: processes of the host need no certificate, at the same server that asks others for theirs.
func TestOneServerTwoSockets(t *testing.T) {
	ca := newCA(t)
	c, _ := credentials(t, ca.files("127.0.0.1", secure.Roles()...))
	server := grpc.NewServer(c.Server()...)
	proto.RegisterOrchestratorServer(server, &orchestrator{})
	var addresses []string
	for _, address := range []string{filepath.Join(t.TempDir(), "s"), "127.0.0.1:0"} {
		l, dial, err := c.Listen(seam.SystemNet{}, address)
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, dial)
		go func() { _ = server.Serve(l) }() // ends with Stop
	}
	defer server.Stop()
	var none *secure.Credentials
	if err := ask(t, client(t, none, addresses[0])); err != nil {
		t.Errorf("the Unix socket: %v", err)
	}
	for _, address := range addresses {
		if err := ask(t, client(t, c, address)); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	if err := ask(t, client(t, none, addresses[1])); status.Code(err) != codes.Unavailable {
		t.Errorf("without TLS: %v", err)
	}
}
