package lease

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace"
)

// pingAfter and pingWait find a member whose connection is dead. Shorter times are against gRPC's rules; calls have
// their own.
const (
	pingAfter = 10 * time.Second
	pingWait  = 3 * time.Second
)

// reconnect bounds the pauses between attempts to connect to a member, and the time of one attempt. gRPC's own pauses
// grow to two minutes while a member is away, and would keep a candidate waiting after its return.
func reconnect() grpc.DialOption {
	return grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: pingWait, Backoff: backoff.Config{
		BaseDelay: 100 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: time.Second}})
}

// dial returns a client of the cluster. It does not wait for the cluster, except for a password to be checked.
func (e *Etcd) dial(ctx context.Context) (*clientv3.Client, error) {
	security, err := e.cfg.tls()
	if err != nil {
		return nil, err
	}
	for {
		client, err := clientv3.New(clientv3.Config{
			Endpoints: e.cfg.Endpoints, TLS: security, Username: e.cfg.User, Password: e.cfg.Password,
			DialTimeout: e.cfg.call(), DialKeepAliveTime: pingAfter, DialKeepAliveTimeout: pingWait,
			Logger: zap.NewNop(), DialOptions: []grpc.DialOption{reconnect(), grpc.WithNoProxy()},
		})
		if err == nil {
			return client, nil
		}
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		if ctx.Err() != nil || isFinal(err) {
			return nil, fmt.Errorf("sign in to etcd as %s: %w", e.cfg.User, e.cfg.refused(err))
		}
		e.tell("waiting for the lease of run " + e.cfg.Run + ": " + e.cfg.Explain(ctx, err))
		select {
		case <-ctx.Done():
		case <-e.cfg.Clock.After(retryDelay):
		}
	}
}

// tls returns the encryption of the connections; nil: none.
func (c EtcdConfig) tls() (*tls.Config, error) {
	if !strings.HasPrefix(c.Endpoints[0], "https:") {
		return nil, nil
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, millrace.Errorf(millrace.ErrInvalid, "etcd lease: read the authority's certificate: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, millrace.Errorf(millrace.ErrInvalid, "etcd lease: %s has no PEM certificate", c.CA)
		}
	}
	if c.Cert != "" {
		read := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
			return &pair, err
		}
		if _, err := read(); err != nil {
			return nil, millrace.Errorf(millrace.ErrInvalid, "etcd lease: read %s and %s: %w", c.Cert, c.Key, err)
		}
		out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return read() }
	}
	return out, nil
}

// code returns the gRPC code of an error of the client.
func code(err error) codes.Code {
	var e rpctypes.EtcdError
	switch {
	case errors.As(err, &e):
		return e.Code()
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	}
	return status.Code(err)
}

// isFinal reports whether waiting cannot help against an error.
func isFinal(err error) bool {
	switch code(err) {
	case codes.PermissionDenied, codes.InvalidArgument, codes.Unimplemented:
		return true
	}
	return errors.Is(err, millrace.ErrMismatch)
}

// reason is an error for people.
func reason(err error) string {
	switch code(err) {
	case codes.DeadlineExceeded:
		return "etcd does not answer"
	case codes.Unavailable:
		return "etcd does not answer: " + strings.TrimPrefix(rpctypes.ErrorDesc(err), "etcdserver: ")
	}
	return err.Error()
}
