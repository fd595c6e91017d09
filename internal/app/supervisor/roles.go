package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"millrace"
)

// Role is what `millrace status` shows of a child.
type Role struct {
	Role     string        `json:"role"`
	Name     string        `json:"name"`
	Pid      int           `json:"pid"` // 0 between death and restart
	State    State         `json:"state"`
	Term     millrace.Term `json:"term"`
	Restarts int           `json:"restarts"`
	Lacks    string        `json:"lacks,omitempty"` // what it needs and waits for, such as room on a disk
}

// ReadRoles reads what the supervisor of a run directory wrote last; fs.ErrNotExist where no `up` runs.
func ReadRoles(runDir string) ([]Role, error) {
	b, err := os.ReadFile(filepath.Join(RuntimeDir(runDir), rolesName))
	if err != nil {
		return nil, fmt.Errorf("read roles: %w", err)
	}
	var roles []Role
	if err := json.Unmarshal(b, &roles); err != nil {
		return nil, fmt.Errorf("read roles of %s: %w", runDir, err)
	}
	return roles, nil
}

// roles is the machine's state as others see it, in starting order.
func (m *machine) roles() []Role {
	out := make([]Role, len(m.children))
	for i := range m.children {
		c := &m.children[i]
		out[i] = Role{Role: c.Role, Name: c.Name, Pid: c.pid, State: c.state, Term: c.term, Restarts: c.restarts, Lacks: c.lacks}
	}
	return out
}
