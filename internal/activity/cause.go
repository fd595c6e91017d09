package activity

import "fmt"

// Cause names the activity that a trainer waits for. The zero value is unknown.
type Cause struct {
	Kind   Kind   `json:"activity"`
	Source string `json:"source,omitempty"`
	Shard  string `json:"shard,omitempty"` // file name, as users see it
	Role   string `json:"role,omitempty"`  // the process that is busy or awaited: loader-0, orchestrator, rank 1 …
	Pid    int64  `json:"pid,omitempty"`
	Text   string `json:"text"` // for people
}

// Describe says in one line which role does what in which file.
func (c Cause) Describe() string {
	who := c.Role
	if c.Pid > 0 {
		who = fmt.Sprintf("%s (pid %d)", c.Role, c.Pid)
	}
	switch {
	case c.Kind == Ranks:
		return c.Role + " has yet to consume the steps before it"
	case c.Shard != "":
		return fmt.Sprintf("%s %s %s of source %s", who, c.Kind.Verb(), c.Shard, c.Source)
	case c.Source != "":
		return fmt.Sprintf("%s %s samples of source %s", who, c.Kind.Verb(), c.Source)
	}
	return fmt.Sprintf("%s %s", who, c.Kind.Verb())
}
