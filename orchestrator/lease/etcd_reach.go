package lease

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
)

// lookFor bounds the look at all members.
const lookFor = time.Second

// Explain returns an error of etcd for people, with the cure. If etcd does not answer, it looks at the members, since
// the client of etcd hides why it cannot connect. This takes up to a second.
func (c EtcdConfig) Explain(ctx context.Context, err error) string {
	var answer rpctypes.EtcdError
	if c := code(err); c != codes.DeadlineExceeded && c != codes.Unavailable || errors.As(err, &answer) {
		return reason(err)
	}
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	var found []string
	for _, endpoint := range c.Endpoints {
		if why := c.look(ctx, endpoint); why != "" {
			found = append(found, endpoint+": "+why)
		}
	}
	if len(found) == 0 {
		return "etcd does not answer in time, but its members accept connections: they are slow, or half are gone"
	}
	return "etcd does not answer: " + strings.Join(found, "; ")
}

// refused adds the cure to an error of etcd against which waiting cannot help.
func (c EtcdConfig) refused(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return fmt.Errorf("%w: write user and password_file in the cluster file", err)
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return fmt.Errorf("%w: correct user and password_file in the cluster file", err)
	case code(err) == codes.PermissionDenied:
		return fmt.Errorf("%w: let the user read and write the keys below millrace/%s/", err, c.Run)
	}
	return err
}

// look connects to a member as the client of etcd does, and returns the obstacle; "": none.
func (c EtcdConfig) look(ctx context.Context, endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return err.Error()
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return dialCause(err)
	}
	defer conn.Close()
	if until, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(until); err != nil {
			return err.Error()
		}
	}
	security, err := c.tls()
	if err != nil {
		return err.Error()
	}
	if security != nil {
		security.ServerName, security.NextProtos = u.Hostname(), []string{"h2"}
		encrypted := tls.Client(conn, security)
		if err := encrypted.HandshakeContext(ctx); err != nil {
			return c.tlsCause(err)
		}
		conn = encrypted
	}
	return c.greet(conn)
}

// preface begins a connection of HTTP/2: the client's magic line, and an empty frame of settings.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// greet returns the obstacle to the first frame of a server, which has settings in HTTP/2. Only now does a server of
// TLS 1.3 say that it refuses the client's certificate.
func (c EtcdConfig) greet(conn net.Conn) string {
	frame := make([]byte, 9)
	_, err := io.WriteString(conn, preface)
	if err == nil {
		_, err = io.ReadFull(conn, frame)
	}
	_, isEncrypted := conn.(*tls.Conn)
	switch {
	case err == nil && frame[3] == 4: // the type of a frame of settings
		return ""
	case isTimeout(err):
		return "it accepts connections, and says nothing: see its log"
	case isEncrypted && err != nil:
		return c.tlsCause(err)
	case !isEncrypted:
		return "it does not speak etcd's protocol there: if it is encrypted, write https:// and tls"
	}
	return "it does not speak etcd's protocol there: correct the endpoint"
}

// dialCause returns why a TCP connection could not be made.
func dialCause(err error) string {
	var unknown *net.DNSError
	switch {
	case errors.As(err, &unknown):
		return fmt.Sprintf("look up the host: %s: correct the endpoint", unknown.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused: start etcd there, or correct the endpoint"
	case isTimeout(err):
		return fmt.Sprintf("no connection within %v", lookFor)
	}
	var of *net.OpError // its text has ports that change
	if errors.As(err, &of) {
		err = of.Err
	}
	return err.Error()
}

// tlsCause returns why TLS failed.
func (c EtcdConfig) tlsCause(err error) string {
	var plain tls.RecordHeaderError
	var stranger x509.UnknownAuthorityError
	var alert tls.AlertError
	switch {
	case errors.As(err, &plain), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return "it is not encrypted: give etcd a certificate, or write http:// if it is on this host"
	case errors.As(err, &stranger) && c.CA == "":
		return "its certificate is of a CA that this host does not know: name that CA's file as ca of tls"
	case errors.As(err, &stranger):
		return fmt.Sprintf("its certificate is of a CA that is not in %s: add that CA to the file", c.CA)
	case isTimeout(err):
		return "it accepts connections, and says nothing: see its log"
	case errors.As(err, &alert), strings.Contains(err.Error(), "remote error"):
		if c.Cert == "" {
			return fmt.Sprintf("it wants a certificate (%v): name one as cert and key of tls", err)
		}
		return fmt.Sprintf("it refuses %s (%v): it must trust the CA of that certificate", c.Cert, err)
	}
	return err.Error()
}

func isTimeout(err error) bool {
	var timed net.Error
	return errors.As(err, &timed) && timed.Timeout() || errors.Is(err, context.DeadlineExceeded)
}
