package lease

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"millrace"
	"millrace/internal/seam"
)

// EtcdConfig names an etcd cluster, and the run whose keys it keeps.
type EtcdConfig struct {
	Endpoints []string // URLs of members: https://host:port, or http:// on this host
	Run       string   // the same for all processes of a run; letters, digits, and any of ._-
	Stream    millrace.Stream
	// Further are the other streams of the run. The process that is elected for Stream leads them, too: they share one
	// election key and one term. Each has its own journals and plans.
	Further []Part
	Host    string // names this host to people; nothing depends on it
	// Line names a line of processes of which one lives at a time, such as the orchestrators of one `up`. A candidate
	// ends the lease of its predecessor, which is dead. Empty: the candidate waits for it.
	Line string
	// StandsBy is for a candidate on one of several hosts. That another process has the lease is then the rule, and
	// Frozen is not called.
	StandsBy bool
	// Address is where other hosts reach this process, as host:port; empty: no other host does.
	Address string
	// Journal is the journal of this candidate; nil: it has none. Only a candidate whose journals are listed, each in
	// the list of its stream, is elected.
	Journal Standing

	// PEM files: the authority of the members, and the certificate and key of this client. All may be empty. They are
	// read again for every connection.
	CA, Cert, Key  string
	User, Password string // may be empty

	TTL   time.Duration // the life of the lease in etcd after a renewal, in whole seconds; 0: 5 s
	Clock seam.Clock    // nil: the system's
	// Frozen is called with the reason why the process cannot decide now or soon, as text for the user. It is called
	// with "" when the process can decide, or stands by for another one. It may be called from any goroutine, and may
	// be nil.
	Frozen func(why string)
}

// Times of a lease by its TTL, which etcd holds to be 2 s at least. etcd may count the TTL from later than the holder
// sent its renewal, but not from earlier. The margin covers clocks of different speed and work under way.
const (
	defaultTTL = 5 * time.Second
	leastTTL   = 2 * time.Second
)

func (c EtcdConfig) margin() time.Duration { return marginOf(c.TTL) }
func (c EtcdConfig) every() time.Duration  { return c.TTL / 6 } // from one renewal to the next
func (c EtcdConfig) call() time.Duration   { return c.TTL / 5 } // the longest wait for one answer

func marginOf(ttl time.Duration) time.Duration { return ttl * 3 / 10 }

func (c EtcdConfig) withDefaults() EtcdConfig {
	if c.TTL == 0 {
		c.TTL = defaultTTL
	}
	if c.Clock == nil {
		c.Clock = seam.System{}
	}
	if c.Journal == nil {
		c.Journal = without{}
	}
	c.Further = slices.Clone(c.Further)
	for i := range c.Further {
		if c.Further[i].Journal == nil {
			c.Further[i].Journal = without{}
		}
	}
	if c.Frozen == nil {
		c.Frozen = func(string) {}
	}
	return c
}

var runName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)

func (c EtcdConfig) validate() error {
	refuse := func(format string, args ...any) error {
		return millrace.Errorf(millrace.ErrInvalid, "etcd lease: "+format, args...)
	}
	switch {
	case !runName.MatchString(c.Run):
		return refuse("name %q: want 1 to 100 letters, digits, dots, underscores and hyphens", c.Run)
	case len(c.Endpoints) == 0:
		return refuse("there is no endpoint: write URLs of etcd members, such as https://host:2379")
	case c.TTL < leastTTL || c.TTL%time.Second != 0:
		return refuse("TTL %v: want whole seconds, at least %v", c.TTL, leastTTL)
	case (c.Cert == "") != (c.Key == ""):
		return refuse("cert and key come together: name both files or none")
	case (c.User == "") != (c.Password == ""):
		return refuse("user and password come together: write both or none")
	}
	for _, p := range c.parts() {
		if !runName.MatchString(string(p.Stream)) {
			return refuse("stream %q: want 1 to 100 letters, digits, dots, underscores and hyphens", p.Stream)
		}
	}
	for _, endpoint := range c.Endpoints {
		u, err := url.Parse(endpoint)
		switch {
		case err != nil || u.Host == "" || u.Port() == "" || u.Scheme != "http" && u.Scheme != "https":
			return refuse("endpoint %q: want a URL with a port, such as https://host:2379", endpoint)
		case u.User != nil || u.Path != "" || u.RawQuery != "":
			return refuse("endpoint %q: want a scheme, a host and a port alone", u.Redacted())
		case u.Scheme == "http" && !isLoopback(u.Hostname()):
			return refuse("endpoint %s is not encrypted, and not on this host: use https://", endpoint)
		case u.Scheme == "http" && c.CA+c.Cert != "":
			return refuse("endpoint %s is not encrypted: use https://, or leave out ca, cert and key", endpoint)
		case !strings.HasPrefix(c.Endpoints[0], u.Scheme+":"):
			return refuse("some endpoints are encrypted and some are not: use https:// for all")
		}
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Part is a further stream of a run, as a candidate has it.
type Part struct {
	Stream  millrace.Stream
	Journal Standing // see EtcdConfig.Journal
}

// parts returns all streams of the run.
func (c EtcdConfig) parts() []Part { return append([]Part{{c.Stream, c.Journal}}, c.Further...) }

// Holder is the value of the election key. It shows users which process has the lease. A candidate sees in it whether
// that is its predecessor, and the roles of other hosts find the holder's address there.
type Holder struct {
	Host     string `json:"host"`
	Identity string `json:"identity"` // of the process: a random number
	Line     string `json:"line,omitempty"`
	Address  string `json:"address,omitempty"` // host:port, for other hosts; empty: it serves its own host alone
}

// LeaderKey returns the election key of a run.
func LeaderKey(c EtcdConfig) string { return keysOf(c, c.Stream).leader }

// isPredecessor reports whether an election key belongs to a dead process of a line.
func isPredecessor(value []byte, line string) bool {
	var h Holder
	return line != "" && json.Unmarshal(value, &h) == nil && h.Line == line
}

// newIdentity returns the random identity of a process.
func newIdentity() string { return rand.Text() }

// describe returns a holder for people.
func describe(value []byte) string {
	var h Holder
	if err := json.Unmarshal(value, &h); err != nil || h.Host == "" {
		return fmt.Sprintf("process %.60q", value)
	}
	return fmt.Sprintf("process %s on %s", h.Identity, h.Host)
}

// keys are the keys of a stream of a run.
//
//	millrace/RUN/STREAM/leader              the election key, of the first stream; its creation revision is the term
//	millrace/RUN/STREAM/journals            the list of the journals in step
//	millrace/RUN/STREAM/plans/ATTEMPT/STEP  the digests of a plan: content and placement
type keys struct{ leader, journals, plans string }

// keysOf returns the keys of a stream.
func keysOf(c EtcdConfig, stream millrace.Stream) keys {
	prefix := fmt.Sprintf("millrace/%s/%s/", c.Run, stream)
	leader := fmt.Sprintf("millrace/%s/%s/leader", c.Run, c.Stream)
	return keys{leader: leader, journals: prefix + "journals", plans: prefix + "plans/"}
}

// plan returns the key of a plan. Keys are in the order of attempts and steps.
func (k keys) plan(attempt millrace.Attempt, step millrace.Step) string {
	return fmt.Sprintf("%s%010d/%020d", k.plans, attempt, uint64(step))
}
