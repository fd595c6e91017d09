package secure

import (
	"crypto/x509"
	"net/url"
	"slices"
	"strings"

	"millrace/proto"
)

// Role is a role of a run that a certificate names. The certificate has a URI for each of its roles, among its
// alternative names: millrace://role/loader, for example.
type Role string

// The roles. A shadow is a loader. An operator is a person or a program that asks an orchestrator.
const (
	Orchestrator Role = "orchestrator"
	Loader       Role = "loader"
	Sidecar      Role = "sidecar"
	Operator     Role = "operator"
)

// Roles returns all roles.
func Roles() []Role { return []Role{Orchestrator, Loader, Sidecar, Operator} }

const scheme, host = "millrace", "role"

// URI returns the name of a role in a certificate.
func (r Role) URI() *url.URL { return &url.URL{Scheme: scheme, Host: host, Path: "/" + string(r)} }

// RolesOf returns the roles of a certificate. Other URIs are allowed and have no effect.
func RolesOf(c *x509.Certificate) []Role {
	var out []Role
	for _, u := range c.URIs {
		if u.Scheme == scheme && u.Host == host {
			out = append(out, Role(strings.TrimPrefix(u.Path, "/")))
		}
	}
	return out
}

// callers has the roles that may call each method. A certificate needs one of them.
var callers = map[string][]Role{
	proto.Orchestrator_Load_FullMethodName:   {Loader},
	proto.Orchestrator_Serve_FullMethodName:  {Sidecar},
	proto.Orchestrator_Status_FullMethodName: {Operator, Orchestrator, Loader, Sidecar},
	proto.Orchestrator_Ledger_FullMethodName: {Operator},
	proto.Orchestrator_Mix_FullMethodName:    {Operator},
	proto.Orchestrator_Follow_FullMethodName: {Orchestrator},
	proto.Loader_Fetch_FullMethodName:        {Sidecar},
	proto.Loader_Beat_FullMethodName:         {Sidecar},
	proto.Loader_Current_FullMethodName:      {Sidecar},
	proto.Constructor_Fetch_FullMethodName:   {Sidecar},
}

// shares reports whether two lists have a role in common.
func shares(a, b []Role) bool {
	return slices.ContainsFunc(a, func(r Role) bool { return slices.Contains(b, r) })
}

// listed returns roles for a sentence.
func listed(roles []Role, join string) string {
	if len(roles) == 0 {
		return "none"
	}
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	return strings.Join(names, join)
}
