package secure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"

	"millrace/internal/seam"
)

// Credentials prove a process to those of other hosts. nil is valid: it allows this host alone.
type Credentials struct {
	store    *store
	warnings *warnings
}

// New returns credentials from files, which it reads and checks. The files are read again for each connection. If a
// renewed file is damaged, the earlier content stays in use, and the log has the reason once.
func New(files Files, log *slog.Logger) (*Credentials, error) {
	w := &warnings{log: log}
	c := &Credentials{warnings: w, store: &store{files: files, warn: w.tell}}
	_, err := c.store.current()
	return c, err
}

// handshakeWithin bounds a handshake. A stranger holds a connection no longer.
const handshakeWithin = 5 * time.Second

// transport implements credentials.TransportCredentials.
type transport struct {
	*Credentials
	server Role // that the certificate of a dialled server needs
}

var _ credentials.TransportCredentials = transport{}

// Info implements credentials.TransportCredentials.
func (t transport) Info() credentials.ProtocolInfo {
	if t.Credentials == nil {
		return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
	}
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials. The value never changes.
func (t transport) Clone() credentials.TransportCredentials { return t }

// OverrideServerName implements credentials.TransportCredentials. The name is that of the dialled address.
func (t transport) OverrideServerName(string) error {
	return errors.New("the server's name is the host of its address")
}

// peerInfo is the other side of a connection.
type peerInfo struct {
	credentials.CommonAuthInfo
	leaf *x509.Certificate // nil: a process of this host
}

// AuthType implements credentials.AuthInfo.
func (peerInfo) AuthType() string { return "millrace" }

var _ credentials.AuthInfo = peerInfo{}

// local is a peer of this host.
func local() peerInfo {
	return peerInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}
}

// ClientHandshake implements credentials.TransportCredentials. It verifies the server's certificate against the host of
// the dialled address, and the server's role.
func (t transport) ClientHandshake(
	ctx context.Context, _ string, raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	remote, isTCP := raw.RemoteAddr().(*net.TCPAddr)
	if !isTCP {
		return raw, local(), nil
	}
	if t.Credentials == nil {
		return raw, local(), onLoopback("reach", raw.RemoteAddr())
	}
	name := remote.IP.String()
	if dialled, ok := raw.(*seam.TCP); ok {
		name = dialled.Host
	}
	cfg, err := t.config()
	if err != nil {
		return nil, nil, err
	}
	own := cfg.Certificates[0].Leaf
	cfg.ServerName = name
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		if leaf := s.PeerCertificates[0]; !shares(RolesOf(leaf), []Role{t.server}) {
			return fmt.Errorf("its certificate %s has the roles %s, and role %s is needed: make it with "+
				"`millrace certs init --roles %s`", subject(leaf), listed(RolesOf(leaf), ", "), t.server, t.server)
		}
		return nil
	}
	conn := tls.Client(raw, cfg)
	info, err := shake(ctx, conn)
	if err != nil {
		return nil, nil, t.refused("refuse "+name, explain(err, t.store.files.CA, own))
	}
	return &explained{Conn: conn, c: t.Credentials, own: own, name: name}, info, nil
}

// ServerHandshake implements credentials.TransportCredentials.
func (t transport) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	remote, isTCP := raw.RemoteAddr().(*net.TCPAddr)
	if !isTCP {
		return raw, local(), nil
	}
	if t.Credentials == nil {
		return raw, local(), onLoopback("serve", remote)
	}
	cfg, err := t.config()
	if err != nil {
		return nil, nil, err
	}
	conn := tls.Server(raw, cfg)
	info, err := shake(context.Background(), conn)
	if err != nil {
		part(raw)
		return nil, nil, t.refused("refuse a connection from "+remote.IP.String(),
			explain(err, t.store.files.CA, cfg.Certificates[0].Leaf))
	}
	return conn, info, nil
}

// config returns the settings of one handshake, for both sides. Sessions are not resumed: each connection checks the
// certificates of its time.
func (c *Credentials) config() (*tls.Config, error) {
	id, err := c.store.current()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, SessionTicketsDisabled: true,
		Certificates: []tls.Certificate{id.certificate}, RootCAs: id.authorities,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: id.authorities,
	}, nil
}

// shake performs a handshake in limited time.
func shake(ctx context.Context, conn *tls.Conn) (peerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeWithin)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		return peerInfo{}, err
	}
	state := conn.ConnectionState()
	if state.NegotiatedProtocol != "h2" {
		return peerInfo{}, errors.New("it does not speak HTTP/2: use the same version of millrace on all hosts")
	}
	return peerInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		state.PeerCertificates[0]}, nil
}

// part ends a refused connection so that the other side receives the reason: closing it with bytes unread would discard
// the reason.
func part(raw net.Conn) {
	if c, ok := raw.(interface{ CloseWrite() error }); ok && c.CloseWrite() == nil {
		_ = raw.SetReadDeadline(time.Now().Add(time.Second))
		_, _ = io.CopyN(io.Discard, raw, 64<<10)
	}
	raw.Close()
}

// refused logs a refusal once and returns it as an error.
func (c *Credentials) refused(what, why string) error {
	text := what + ": " + why
	c.warnings.tell(text)
	return errors.New(text)
}

// onLoopback refuses a plain connection that leaves this host.
func onLoopback(verb string, address net.Addr) error {
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		return nil
	}
	return far(verb, address)
}

// far is the error of a plain connection that leaves this host.
func far(verb string, address any) error {
	return fmt.Errorf("%s %v without TLS: only loopback addresses may do without: %s", verb, address, cure)
}

const cure = "set tls: {ca, cert, key} in the cluster file; `millrace certs init` makes these files"

// explain returns the reason why a handshake failed, with the cure. own is the certificate of this side.
func explain(err error, ca string, own *x509.Certificate) string {
	var (
		unverified *tls.CertificateVerificationError
		record     tls.RecordHeaderError
	)
	text := err.Error()
	switch {
	case errors.As(err, &unverified) && len(unverified.UnverifiedCertificates) > 0:
		return "its certificate " + fault(unverified.UnverifiedCertificates[0], unverified.Err, ca)
	case errors.As(err, &record):
		return "it speaks no TLS: on its side, " + cure
	case strings.Contains(text, "didn't provide a certificate"):
		return "it shows no certificate: on its side, " + cure
	case strings.Contains(text, "unsupported versions"), strings.Contains(text, "protocol version"):
		return "it does not speak TLS 1.3, which is needed: use millrace on both sides"
	case strings.Contains(text, "remote error: tls: "):
		return fmt.Sprintf("it refuses the certificate %s, which is valid to %s, with %q: its log has the reason",
			subject(own), day(own.NotAfter), text[strings.Index(text, "tls: ")+len("tls: "):])
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("its TLS handshake took longer than %v", handshakeWithin)
	}
	return text
}

// explained is a client's connection. The server verifies the client's certificate after the client's part of the
// handshake has ended, so a refusal comes with a later read.
type explained struct {
	*tls.Conn
	c    *Credentials
	own  *x509.Certificate
	name string
}

// Read implements net.Conn.
func (e *explained) Read(b []byte) (int, error) {
	n, err := e.Conn.Read(b)
	if err != nil && strings.Contains(err.Error(), "remote error: tls: ") {
		err = e.c.refused("reach "+e.name, explain(err, e.c.store.files.CA, e.own))
	}
	return n, err
}
