package secure

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// checkCaller refuses a call if the caller's certificate has no role for the method. Processes of this host may call
// every method.
func (c *Credentials) checkCaller(ctx context.Context, method string) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return status.Errorf(codes.PermissionDenied, "%s: the caller is unknown", method)
	}
	info, ok := p.AuthInfo.(peerInfo)
	if !ok {
		return status.Errorf(codes.PermissionDenied, "%s: the caller at %s is unknown", method, p.Addr)
	}
	if info.leaf == nil {
		return nil
	}
	has, needed := RolesOf(info.leaf), callers[method]
	if shares(has, needed) {
		return nil
	}
	text := fmt.Sprintf("%s: certificate %s has the roles %s, and role %s is needed: make one with "+
		"`millrace certs init`", method, subject(info.leaf), listed(has, ", "), listed(needed, " or "))
	c.warnings.tell("refuse a call: " + text)
	return status.Error(codes.PermissionDenied, text)
}

func (c *Credentials) checkUnary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	if err := c.checkCaller(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func (c *Credentials) checkStream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	if err := c.checkCaller(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	return handler(srv, stream)
}

// noteRefusal logs that a server refused a call of this process for its roles. The caller may try again without end:
// the certificate may be replaced meanwhile.
func (c *Credentials) noteRefusal(err error) {
	if s := status.Convert(err); s.Code() == codes.PermissionDenied {
		c.warnings.tell("a call is refused: " + s.Message())
	}
}

func (c *Credentials) noteUnary(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	c.noteRefusal(err)
	return err
}

func (c *Credentials) noteStream(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
	opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, conn, method, opts...)
	if err != nil {
		c.noteRefusal(err)
		return nil, err
	}
	return noted{stream, c}, nil
}

// noted is a stream whose refusal is logged.
type noted struct {
	grpc.ClientStream
	c *Credentials
}

// RecvMsg implements grpc.ClientStream.
func (n noted) RecvMsg(m any) error {
	err := n.ClientStream.RecvMsg(m)
	if err != nil {
		n.c.noteRefusal(err)
	}
	return err
}
