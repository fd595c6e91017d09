package report

import (
	"fmt"
	"testing"
)

// TestMissingRanksAreHosts: each gap between the ranks of the hosts is one missing host.
func TestMissingRanksAreHosts(t *testing.T) {
	host := func(first, ranks int) Host { return Host{Name: "h", State: "running", First: first, Ranks: ranks} }
	loader := Host{Name: "h", State: "running", Process: "loader-1"}
	for _, c := range []struct {
		there []Host
		want  string
	}{
		{nil, "[missing 0+6]"},
		{[]Host{host(0, 6)}, "[running 0+6]"},
		{[]Host{host(0, 1), host(3, 2), loader}, "[running 0+1 missing 1+2 running 3+2 missing 5+1 loader-1]"},
		{[]Host{loader}, "[missing 0+6 loader-1]"},
		{[]Host{host(2, 4), loader}, "[missing 0+2 running 2+4 loader-1]"},
	} {
		var got []string
		for _, h := range WithMissing(c.there, 6) {
			if h.Ranks == 0 {
				got = append(got, h.Process)
			} else {
				got = append(got, fmt.Sprintf("%s %d+%d", h.State, h.First, h.Ranks))
			}
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%v, want %s", got, c.want)
		}
	}
}
