package secure

import (
	"crypto/x509"
	"net/url"
	"slices"
	"testing"

	"google.golang.org/grpc"

	"millrace/proto"
)

// TestEveryMethodHasCallers: no method of a service is open to every certificate by accident, or closed to all.
func TestEveryMethodHasCallers(t *testing.T) {
	methods := map[string]bool{}
	for _, s := range []grpc.ServiceDesc{
		proto.Orchestrator_ServiceDesc, proto.Loader_ServiceDesc, proto.Constructor_ServiceDesc,
	} {
		for _, m := range s.Methods {
			methods["/"+s.ServiceName+"/"+m.MethodName] = true
		}
		for _, m := range s.Streams {
			methods["/"+s.ServiceName+"/"+m.StreamName] = true
		}
	}
	for m := range methods {
		if len(callers[m]) == 0 {
			t.Errorf("the table of callers lacks %s", m)
		}
	}
	for m, roles := range callers {
		if !methods[m] {
			t.Errorf("the table of callers has %s, which no service has", m)
		}
		for _, r := range roles {
			if !slices.Contains(Roles(), r) {
				t.Errorf("%s: there is no role %q", m, r)
			}
		}
	}
}

func TestRolesOfACertificate(t *testing.T) {
	c := &x509.Certificate{}
	for _, text := range []string{"millrace://role/loader", "spiffe://role/orchestrator", "millrace://other/operator",
		"https://a.example/role/operator", "millrace://role/sidecar"} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		c.URIs = append(c.URIs, u)
	}
	if got := RolesOf(c); !slices.Equal(got, []Role{Loader, Sidecar}) {
		t.Errorf("roles %v", got)
	}
}
