// Package secure holds the rules for connections between roles: TLS with certificates on both sides between hosts, the
// roles that a certificate may act as, and the limits of every gRPC server and client.
//
// Unix sockets and connections inside a process have no TLS. Their peers belong to the same user of the same host.
package secure
