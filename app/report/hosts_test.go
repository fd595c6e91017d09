package report

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"millrace/app/supervisor"
	"millrace/proto"
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

// TestHostsAreUnknown: while etcd does not answer, the JSON has an empty list, and the processes of other hosts stay.
// The orchestrator that answers is a process of another host, although both hosts have one name.
func TestHostsAreUnknown(t *testing.T) {
	orchestrator := supervisor.Role{Role: "orchestrator", Name: "orchestrator", Pid: 7}
	v := NewStatus([]supervisor.Role{orchestrator, {Role: "loader", Name: "loader-1-0", Pid: 8}}, true)
	v.Spread("127.0.0.1", nil)
	v.Answer(&proto.StatusReply{Roles: []*proto.RoleStatus{
		{Role: "orchestrator", Name: "orchestrator", Pid: 3, Host: "127.0.0.1"},
		{Role: "loader", Name: "loader-0-0", Pid: 4, Host: "127.0.0.1"},
		{Role: "loader", Name: "loader-1-0", Pid: 6, Host: "127.0.0.1"}, // the supervisor knows its next process
	}})
	object, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(object), `"hosts":[]`) {
		t.Errorf("the status has no list of hosts: %s", object)
	}
	var pids []int
	for _, r := range v.Roles {
		pids = append(pids, r.Pid)
	}
	if want := []int{7, 8, 3, 4}; !slices.Equal(pids, want) {
		t.Errorf("the processes are %v, want %v", pids, want)
	}
}
