package report

import (
	"fmt"
	"io"
	"slices"
	"time"

	"millrace"
	"millrace/app/exit"
	"millrace/app/supervisor"
	"millrace/checkpoint"
	"millrace/orchestrator/facts"
	"millrace/proto"
)

// Status is the answer of `millrace status`. Scripts read its JSON names.
type Status struct {
	Running     bool              `json:"running"`
	Roles       []supervisor.Role `json:"roles"`
	Step        *uint64           `json:"step"` // first step that not every rank has consumed; null if unknown
	Planned     *uint64           `json:"planned"`
	Attempt     uint32            `json:"attempt"`
	Ended       bool              `json:"ended"`
	Sources     map[string]Source `json:"sources"`
	Quarantined Quarantined       `json:"quarantined"`
	Waiting     string            `json:"waiting"`
	Alerts      []Alert           `json:"alerts"`   // capabilities that the run lacks now
	Stripes     []Stripe          `json:"stripes"`  // the loader of each stripe, and its standby
	Mixture     *Mixture          `json:"mixture"`  // null if unknown
	Masked      uint64            `json:"masked"`   // segments that became unreadable after sealing
	Cache       *Cache            `json:"cache"`    // null without a token cache, or if unknown
	GPUs        []GPU             `json:"gpus"`     // of the connected ranks; empty without a driver
	Delivery    *Delivery         `json:"delivery"` // null if unknown
	Hosts       []Host            `json:"hosts"`    // of a run with several hosts, by rank; else empty
	// Scaling is the number of loaders that follows the work; null if it is fixed, or unknown.
	Scaling *Scaling `json:"scaling"`
	// Streams are the further streams that are served, by name.
	Streams map[string]*Status `json:"streams,omitempty"`

	isSpread bool // the run has several hosts; Hosts is empty if etcd does not answer
}

// AddStream adds the status of a further stream.
func (v *Status) AddStream(name string, of *Status) {
	if v.Streams == nil {
		v.Streams = map[string]*Status{}
	}
	v.Streams[name] = of
}

// printStreams prints a line for each further stream.
func (v *Status) printStreams(w io.Writer) {
	for _, name := range Names(v.Streams) {
		s := v.Streams[name]
		text := "no trainer has begun it"
		switch {
		case s.Waiting != "":
			text = s.Waiting
		case s.Attempt > 0 && s.Step != nil:
			text = fmt.Sprintf("attempt %d, step %d", s.Attempt, *s.Step)
		}
		fmt.Fprintf(w, "stream %s: %s\n", name, text)
	}
}

// Host is a host of a run. State is running or missing; a missing one has no name.
type Host struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Process string `json:"process,omitempty"` // the only one, of a host without ranks
	First   int    `json:"first_rank"`
	Ranks   int    `json:"ranks"` // 0: none
	Leads   bool   `json:"leads"` // it plans the run
}

// WithMissing adds missing hosts for the ranks of a run that no host serves. there has the hosts with ranks by rank,
// and then the others.
func WithMissing(there []Host, world int) (out []Host) {
	next := 0 // the first rank that no host before serves
	missing := func(until int) {
		if next < until {
			out = append(out, Host{State: "missing", First: next, Ranks: until - next})
		}
	}
	for _, h := range there {
		if h.Ranks > 0 {
			missing(h.First)
			next = h.First + h.Ranks
		} else if next < world {
			missing(world)
			next = world
		}
		out = append(out, h)
	}
	missing(world)
	return out
}

// Spread adds the hosts of a run with several ones. here is the name of this host.
func (v *Status) Spread(here string, all []Host) {
	v.isSpread, v.Hosts = true, append(v.Hosts, all...)
	for i := range v.Roles {
		v.Roles[i].Host = here
	}
}

// addElsewhere adds the processes of other hosts that the orchestrator knows.
func (v *Status) addElsewhere(r *proto.StatusReply) {
	for _, known := range r.Roles {
		isHere := func(role supervisor.Role) bool {
			// The orchestrator that answers knows its own process. Hosts of one machine may have one name.
			return role.Name == known.Name && (role.Host == known.Host || known.Host == "") &&
				(known.Role != "orchestrator" || int64(role.Pid) == known.Pid)
		}
		if v.isSpread && !slices.ContainsFunc(v.Roles, isHere) {
			v.Roles = append(v.Roles, supervisor.Role{Role: known.Role, Name: known.Name, Pid: int(known.Pid),
				State: supervisor.State(known.State), Term: millrace.Term(known.Term), Host: known.Host})
		}
	}
}

// printHosts prints a line for each host.
func (v *Status) printHosts(w io.Writer) {
	for _, h := range v.Hosts {
		text := fmt.Sprintf("rank %d", h.First)
		if h.Ranks > 1 {
			text = fmt.Sprintf("ranks %d to %d", h.First, h.First+h.Ranks-1)
		} else if h.Ranks == 0 {
			text = h.Process
		}
		switch {
		case h.State != "running":
			text += ": no host serves them now"
		case h.Leads:
			text += ": " + h.Name + ", which plans the run"
		default:
			text += ": " + h.Name
		}
		fmt.Fprintln(w, text)
	}
}

// Alert is a capability that the run lacks. Since is a time in RFC 3339, empty if unknown.
type Alert struct {
	Kind  string `json:"kind"`
	Text  string `json:"text"`
	Since string `json:"since"`
}

// Stripe is one stripe of a source with its loader and its standby. Shadow is empty without a standby.
type Stripe struct {
	Source     string        `json:"source"`
	Stripe     uint32        `json:"stripe"`
	Loader     string        `json:"loader"`
	Term       millrace.Term `json:"term"`
	Shadow     string        `json:"shadow"`
	ShadowTerm millrace.Term `json:"shadow_term"`
}

type Source struct {
	Tokens  uint64  `json:"tokens"`
	Trained *uint64 `json:"trained_tokens"` // labels of these tokens that are in the loss; null: all are trained on
	Samples uint64  `json:"samples"`
	Epoch   uint32  `json:"epoch"`
	Share   float64 `json:"share"`       // of all tokens
	Passed  uint64  `json:"passed_over"` // documents refused by filters, without tokens, or rejected
	Missing uint64  `json:"missing"`     // of these, left out because a field is missing
	TooLong uint64  `json:"too_long"`    // documents that were truncated, dropped or split by too_long
	Bad     uint64  `json:"quarantined"` // records
	Shuffle string  `json:"shuffle"`     // the order that the files allow; empty while they are not known
	Why     string  `json:"why"`         // why it is not the order in the mixture file; empty if it is

	Storage *Storage `json:"storage,omitempty"` // missing if the files are local
}

type Quarantined struct {
	Count  uint64                `json:"count"`
	Recent []millrace.Quarantine `json:"recent"`
}

// NewStatus returns the status of a run with these processes, before its orchestrator has answered.
func NewStatus(roles []supervisor.Role, running bool) *Status {
	if !running {
		roles = nil
	}
	return &Status{Running: running, Roles: append([]supervisor.Role{}, roles...), Sources: map[string]Source{},
		Quarantined: Quarantined{Recent: []millrace.Quarantine{}}, Alerts: []Alert{}, Stripes: []Stripe{},
		GPUs: []GPU{}, Hosts: []Host{}}
}

// Unanswered notes why the orchestrator did not answer.
func (v *Status) Unanswered(err error) {
	v.Waiting = fmt.Sprintf("the orchestrator does not answer: %v", err)
	v.addRoleAlerts()
}

// Answer adds the orchestrator's answer.
func (v *Status) Answer(r *proto.StatusReply) {
	v.Step, v.Planned, v.Attempt, v.Ended, v.Waiting = &r.Step, &r.Planned, r.GetFence().
		GetAttempt(),
		r.Ended, r.Waiting
	for name, s := range r.Sources {
		v.Sources[name] = Source{
			Tokens:  s.Tokens,
			Samples: s.Samples,
			Epoch:   s.Epoch,
			Share:   s.Share,
			Passed:  s.PassedOver,
			Missing: s.Missing,
			TooLong: s.TooLong,
			Bad:     s.Quarantined,
			Shuffle: s.Shuffle,
			Why:     s.Why,
			Storage: storageOf(name, r.Delivery),
			Trained: counted(s.Counted, s.Trained),
		}
	}
	v.setQuarantined(r.Quarantined, r.Recent)
	v.Masked = r.Masked
	v.Cache, v.Delivery = newCache(r.Roles), (*Delivery)(r.Delivery)
	v.Mixture, v.Scaling = NewMixture(r.Mixture), newScaling(r.Scaling)
	for _, a := range r.Alerts {
		v.Alerts = append(v.Alerts, newAlert(a))
	}
	for _, p := range r.Stripes {
		v.Stripes = append(
			v.Stripes,
			Stripe{Source: p.Source, Stripe: p.Stripe, Loader: p.Name, Term: millrace.Term(p.Term),
				Shadow: p.GetStandby().GetName(), ShadowTerm: millrace.Term(p.GetStandby().GetTerm())},
		)
	}
	for _, g := range r.Gpus {
		v.GPUs = append(v.GPUs, newGPU(g))
	}
	Acting(v.Roles, r)
	v.addElsewhere(r)
	v.addRoleAlerts()
}

// Acting replaces roles, terms and hosts by those of the orchestrator's answer. The supervisor has only the role at a
// process's start, and a promoted shadow acts as a loader.
func Acting(roles []supervisor.Role, r *proto.StatusReply) {
	for _, known := range r.Roles {
		for i := range roles {
			if role := &roles[i]; role.Name == known.Name && int64(role.Pid) == known.Pid {
				role.Role, role.Term = known.Role, max(role.Term, millrace.Term(known.Term))
				role.Host = known.Host
			}
		}
	}
}

// printRoles prints the processes, with their hosts if the run has several.
func (v *Status) printRoles(w io.Writer) error {
	if len(v.Roles) == 0 {
		return nil
	}
	hasHosts := slices.ContainsFunc(v.Roles, func(r supervisor.Role) bool { return r.Host != "" })
	head := []any{"\nROLE", "NAME", "PID", "STATE", "TERM", "RESTARTS"}
	if hasHosts {
		head = append(head, "HOST")
	}
	rows := []string{Row(head...)}
	for _, r := range v.Roles {
		row := []any{r.Role, r.Name, r.Pid, r.State, r.Term, r.Restarts}
		if hasHosts {
			row = append(row, r.Host)
		}
		rows = append(rows, Row(row...))
	}
	return Table(w, rows...)
}

func newAlert(a *proto.Alert) Alert {
	out := Alert{Kind: a.Kind, Text: a.Text}
	if a.Since != 0 {
		out.Since = time.UnixMilli(a.Since).UTC().Format(time.RFC3339)
	}
	return out
}

// addRoleAlerts adds an alert for each role that cannot start and so cannot report by itself.
func (v *Status) addRoleAlerts() {
	for _, r := range v.Roles {
		if r.Lacks != "" {
			v.Alerts = append(v.Alerts, Alert{Kind: "role", Text: r.Name + " is waiting: " + r.Lacks})
		}
	}
}

func (v *Status) setQuarantined(n uint64, recent []*proto.Quarantine) {
	v.Quarantined.Count = n
	for _, q := range recent {
		v.Quarantined.Recent = append(
			v.Quarantined.Recent, millrace.Quarantine{Source: q.Source, ID: q.Id, Offset: q.Offset, Reason: q.Reason},
		)
	}
}

// Stored adds the facts in the journal of a stopped run.
func (v *Status) Stored(store *checkpoint.Store) error {
	s, st, err := facts.ReadCounters(store, millrace.Train)
	if err != nil {
		return exit.Failure(err)
	}
	v.Mixture = &Mixture{Changes: storedChanges(s), Earlier: s.Changes - uint64(len(s.Mixed))}
	v.Step, v.Planned, v.Attempt, v.Ended = &s.Watermark, &s.Next, s.Attempt.GetAttempt(), s.Ended != nil
	total := uint64(0)
	for _, n := range s.Quarantined {
		total += n
	}
	v.setQuarantined(total, s.RecentQuarantines())
	if v.Waiting = "the run is stopped"; v.Ended && s.Watermark >= s.Ended.GetSteps() {
		v.Waiting = "the run is complete: it ended when " + ending(s.Ended.GetReason())
	}
	for i, name := range Names(s.Manifests) {
		if i < len(st.Sources) {
			src := &st.Sources[i]
			v.Sources[name] = Source{
				Tokens: src.Tokens, Samples: src.Samples, Epoch: uint32(src.Epoch),
				Share:  float64(src.Tokens) / float64(max(st.Tokens, 1)),
				Passed: src.PassedOver(), Missing: src.Counts.Missing, TooLong: src.Counts.TooLong,
				Bad:     s.Quarantined[name],
				Trained: counted(src.Counts.Trained > 0, src.Counts.Trained),
				Shuffle: s.Manifests[name].GetShuffle(), Why: s.Manifests[name].GetWhy(),
			}
		}
	}
	return nil
}

// Print writes the status for people.
func (v *Status) Print(w io.Writer) error {
	if v.Step != nil {
		fmt.Fprintf(w, "step %d, planned up to %d, attempt %d\n", *v.Step, *v.Planned, v.Attempt)
	}
	if v.Waiting != "" {
		fmt.Fprintf(w, "waiting: %s\n", v.Waiting)
	}
	if v.Delivery != nil {
		v.Delivery.print(w)
	}
	for _, a := range v.Alerts {
		fmt.Fprintf(w, "warning: %s\n", a.line())
	}
	v.Scaling.print(w)
	v.printHosts(w)
	v.printStreams(w)
	if err := v.printRoles(w); err != nil {
		return err
	}
	if len(v.Sources) > 0 {
		if err := v.printSources(w); err != nil {
			return err
		}
	}
	for _, name := range Names(v.Sources) {
		v.Sources[name].printCounts(w, name)
		if s := v.Sources[name].Storage; s != nil {
			s.print(w, name)
		}
	}
	for _, name := range Names(v.Sources) {
		if why := v.Sources[name].Why; why != "" {
			fmt.Fprintf(
				w, "%s is shuffled in %s, not as the mixture file asks: %s\n", name, v.Sources[name].Shuffle, why,
			)
		}
	}
	if len(v.Stripes) > 0 {
		if err := v.printStripes(w); err != nil {
			return err
		}
	}
	if err := v.PrintGPUs(w); err != nil {
		return err
	}
	if v.Cache != nil {
		v.Cache.print(w)
	}
	if v.Mixture != nil {
		v.Mixture.printChanges(w)
	}
	if v.Masked > 0 {
		fmt.Fprintf(w, "\nmasked: %d segments that became unreadable after their steps were sealed\n", v.Masked)
	}
	if v.Quarantined.Count > 0 {
		fmt.Fprintf(w, "\nquarantined: %d\n", v.Quarantined.Count)
	}
	for _, q := range v.Quarantined.Recent {
		fmt.Fprintf(w, "  %s %s at byte %d: %s\n", q.Source, q.ID, q.Offset, q.Reason)
	}
	return nil
}

// counted returns a number of labels, nil if a source counts none.
func counted(is bool, n uint64) *uint64 {
	if !is {
		return nil
	}
	return &n
}

// printSources writes what each source has given. Trained tokens have a column if some source leaves any out.
func (v *Status) printSources(w io.Writer) error {
	hasUntrained := false
	for _, s := range v.Sources {
		hasUntrained = hasUntrained || s.Trained != nil
	}
	head := []any{"\nSOURCE", "TOKENS"}
	if hasUntrained {
		head = append(head, "TRAINED")
	}
	rows := []string{Row(append(head, "SAMPLES", "PASSED OVER", "EPOCH", "SHARE")...)}
	for _, name := range Names(v.Sources) {
		s := v.Sources[name]
		row := []any{name, Count(s.Tokens)}
		switch {
		case s.Trained != nil:
			row = append(row, Count(*s.Trained))
		case hasUntrained:
			row = append(row, "all")
		}
		rows = append(rows, Row(append(row, Count(s.Samples), Count(s.Passed), s.Epoch, Percent(s.Share))...))
	}
	return Table(w, rows...)
}

// printCounts writes the documents that were left out or cut, and the bad ones, if there are any.
func (s Source) printCounts(w io.Writer, name string) {
	for _, x := range []struct {
		n    uint64
		text string
	}{
		{s.Missing, "records lack a field and are left out (missing: skip)"},
		{s.TooLong, "documents are longer than the source allows (too_long)"},
		{s.Bad, "records are quarantined"},
	} {
		if x.n > 0 {
			fmt.Fprintf(w, "%s: %s %s\n", name, Count(x.n), x.text)
		}
	}
}

// printStripes writes the loader and the standby of each stripe.
func (v *Status) printStripes(w io.Writer) error {
	rows := []string{Row("\nSTRIPE", "LOADER", "TERM", "SHADOW", "TERM")}
	for _, p := range v.Stripes {
		name, term := p.Shadow, fmt.Sprint(p.ShadowTerm)
		if name == "" {
			name, term = "-", "-"
		}
		rows = append(rows, Row(fmt.Sprintf("%s/%d", p.Source, p.Stripe), p.Loader, p.Term, name, term))
	}
	return Table(w, rows...)
}

func (a *Alert) line() string {
	if a.Since == "" {
		return a.Text
	}
	return a.Text + " (since " + a.Since + ")"
}
