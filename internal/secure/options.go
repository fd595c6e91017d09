package secure

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"millrace"
	"millrace/internal/seam"
	"millrace/internal/wire"
)

// Target is the target of every client. The option of the dialler has the address.
const Target = "passthrough:///role"

// gRPC asks the process at the other end of an idle connection between hosts for a sign of life. This finds a process
// that hangs on a host that works; seam.DeadPeer finds a dead host sooner. pingAfter is the shortest time that gRPC
// allows. A server lets clients ask as often as that.
const (
	pingAfter  = 10 * time.Second
	pongWithin = 5 * time.Second
	leastPings = pingAfter / 2
)

// Server returns the options that every gRPC server of a role has. One server may serve Unix and TCP sockets.
func (c *Credentials) Server() []grpc.ServerOption {
	out := []grpc.ServerOption{
		grpc.Creds(transport{Credentials: c}),
		grpc.MaxRecvMsgSize(wire.MaxMessage), grpc.MaxSendMsgSize(wire.MaxMessage),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: leastPings, PermitWithoutStream: true}),
	}
	if c == nil {
		return out
	}
	return append(out,
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pongWithin}),
		grpc.ChainUnaryInterceptor(c.checkUnary), grpc.ChainStreamInterceptor(c.checkStream))
}

// Client returns the options that every gRPC client of a role has. It dials an address in a network. If the connection
// leaves the host, the server's certificate needs the role. The authority of the calls is the address, as in all of
// HTTP: a server may serve several names. A path is no authority.
func (c *Credentials) Client(network seam.Net, address string, server Role) []grpc.DialOption {
	out := []grpc.DialOption{
		grpc.WithTransportCredentials(transport{c, server}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return network.Dial(ctx, address)
		}),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(wire.MaxMessage), grpc.MaxCallSendMsgSize(wire.MaxMessage)),
	}
	if !seam.IsPath(address) {
		out = append(out, grpc.WithAuthority(address))
	}
	if c == nil {
		return out
	}
	return append(out,
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: pingAfter, Timeout: pongWithin, PermitWithoutStream: true}),
		grpc.WithChainUnaryInterceptor(c.noteUnary), grpc.WithChainStreamInterceptor(c.noteStream))
}

// Listen listens on an address, and returns the address for diallers: that of a host:port has the port that the kernel
// chose for port 0. Without credentials, it refuses a host:port that other hosts reach.
func (c *Credentials) Listen(network seam.Net, address string) (net.Listener, string, error) {
	host, _, err := net.SplitHostPort(address)
	if seam.IsPath(address) || err != nil {
		l, err := network.Listen(address)
		return l, address, err
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		return nil, "", millrace.Errorf(millrace.ErrInvalid,
			"listen on %s: other hosts need a host to dial: write it before the port, as in a.example:9400", address)
	}
	l, err := network.Listen(address)
	if err != nil {
		return nil, "", err
	}
	bound, isTCP := l.Addr().(*net.TCPAddr)
	if !isTCP {
		return l, address, nil
	}
	if c == nil {
		if err := onLoopback("listen on", bound); err != nil {
			l.Close()
			return nil, "", millrace.Mark(err, millrace.ErrInvalid)
		}
	}
	return l, net.JoinHostPort(host, fmt.Sprint(bound.Port)), nil
}

// CheckPlain refuses a host:port at which other hosts would reach a role without TLS, before anything listens there. A
// name without an address passes: listening fails with its reason.
func CheckPlain(ctx context.Context, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	found, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return nil
	}
	if slices.ContainsFunc(found, func(ip net.IPAddr) bool { return ip.IP.IsLoopback() }) {
		return nil
	}
	return millrace.Mark(far("listen on", address), millrace.ErrInvalid)
}
