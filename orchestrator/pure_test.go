package orchestrator

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"sort"
	"strings"
	"testing"

	"millrace/orchestrator/feedback"
	"millrace/orchestrator/roster"
	"millrace/proto"
)

// purity checks that Decide does not change the machine: for the first decisions, and for a sample of the later ones.
type purity struct {
	decided int
	every   int            // one of so many is checked; 0: sampleEvery
	kinds   map[string]int // decisions that were checked, by the facts and effects in them
}

const sampleEvery = 99

// decide lets a machine decide, and fails if that changes anything that the machine reaches.
func (p *purity) decide(t testing.TB, m *Machine) Decision {
	t.Helper()
	if p.decided++; p.decided%cmp.Or(p.every, sampleEvery) > 0 {
		return m.Decide()
	}
	before := fingerprint(m)
	d := m.Decide()
	if fingerprint(m) != before {
		t.Fatalf("Decide changed the machine on the way to %v and %T", d.Facts, d.effects)
	}
	p.count(d)
	return d
}

func (p *purity) count(d Decision) {
	if p.kinds == nil {
		p.kinds = map[string]int{}
	}
	for _, f := range d.Facts {
		p.kinds[strings.TrimPrefix(fmt.Sprintf("%T", f.Record.GetFact()), "*proto.Record_")]++
	}
	for _, e := range d.effects {
		p.kinds[strings.TrimPrefix(strings.TrimPrefix(fmt.Sprintf("%T", e), "*"), "orchestrator.")]++
	}
	if d.Failed != nil {
		p.kinds["Failed"]++
	}
}

// TestDecideChangesNothing checks the decisions of runs that meet all kinds of events: it fails if one of them changes
// the machine, and if a kind of decision was not met.
func TestDecideChangesNothing(t *testing.T) {
	w := newAdaptive(t, 2, feedback.ODM)
	w.purity.every, w.records = 1, 200
	w.reject = func(source string, ordinal uint64) string {
		if source == "web" && ordinal == 7 {
			return "it is broken"
		}
		return ""
	}
	w.connect()
	w.joinAll("fresh", nil)
	w.learn(8, 1)
	w.must(&proto.MixRequest{Change: &proto.MixRequest_Set{Set: setWeights("1", "2")}})
	if _, err := w.asks(&proto.MixRequest{}); err == nil {
		t.Error("a request without a change was not refused")
	}
	w.m.saves.observe(3)
	w.turn()
	plan := w.m.s.Sealed[w.m.s.Watermark].Plan
	w.m.masks.observe(
		&proto.Bad{Step: plan.Step, Source: plan.Assignments.Source[0], Ordinal: plan.Assignments.Ordinal[0],
			Offset: plan.Assignments.Offset[0]},
	)
	w.turn()
	w.m.ranks.Leave(w.sidecar, 1)
	w.join(1, "latest", nil)
	w.join(0, "nowhere", nil)
	w.joinAll("state", state(t, w, 4))
	w.learn(12, 2)
	w.restart()
	w.connect()
	w.joinAll("latest", nil)
	w.m.Disk(1<<20, 1<<40)
	for step := uint64(0); !w.m.Done() && step < 500; step++ {
		w.consume(w.m.s.Watermark + 1)
	}
	if !w.m.Done() {
		t.Fatalf("the run does not end: %s", w.m.s)
	}

	c := newCluster(t, 1, "loader-0", "loader-1", "shadow-0")
	c.purity.every = 3
	c.settle()
	c.m.roster.Disconnect(c.slots["loader-1"].box, "loader-1")
	c.slots["loader-1"] = nil
	c.turn()
	c.wait(roster.Absence)
	c.m.roster.Leaving(c.slots["loader-0"].box, "loader-0", &proto.Leaving{})
	c.settle()

	bad := newWorld(t, 1)
	bad.purity.every = 1
	bad.reject = func(_ string, ordinal uint64) string { return []string{"it is broken", ""}[min(ordinal%10, 1)] }
	bad.connect()
	bad.joinAll("fresh", nil)
	for step := uint64(0); bad.m.Failed() == nil && step < 50; step++ {
		bad.consume(bad.m.s.Watermark + 1)
	}

	for _, kind := range []string{"Saved", "Masked", "Mixed", "Opened", "Acknowledged", "Pinned", "Assigned",
		"Sealed", "Quarantined", "Ended", "Failed",
		"mixAnswer", "adaption", "rankAnswers", "loaderOrders", "directoryMoved", "drawNext", "alerting",
		"shuffleWarned", "waitingChanged"} {
		if w.purity.kinds[kind]+c.purity.kinds[kind]+bad.purity.kinds[kind] == 0 {
			t.Errorf("no decision of kind %s was checked", kind)
		}
	}
}

// fingerprint hashes all state that a machine reaches through pointers, maps, slices and interfaces.
func fingerprint(m *Machine) uint64 {
	w := &walk{seen: map[visit]uint64{}}
	w.value(reflect.ValueOf(m))
	return w.hash
}

// walk hashes values in a fixed order. Functions count as nothing: a closure's own state is out of reach.
type walk struct {
	hash uint64
	seen map[visit]uint64
}

type visit struct {
	at uintptr
	of reflect.Type
	n  int
}

func (w *walk) add(n uint64) { w.hash = (bits.RotateLeft64(w.hash, 23) ^ n) * 0x9e3779b97f4a7c15 }

func (w *walk) addText(text string) {
	w.add(uint64(len(text)))
	for i := range len(text) {
		w.add(uint64(text[i]))
	}
}

func (w *walk) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Invalid, reflect.Func:
		w.add(1)
	case reflect.Pointer:
		if !w.isKnown(v, 0) {
			w.value(v.Elem())
		}
	case reflect.Interface:
		w.value(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if !isScratch(v.Type().Field(i).Type) {
				w.value(v.Field(i))
			}
		}
	case reflect.Slice:
		w.add(uint64(v.Len()))
		if v.Len() > 0 && !w.isKnown(v, v.Len()) {
			w.elements(v)
		}
	case reflect.Array:
		w.elements(v)
	case reflect.Map:
		w.entries(v)
	case reflect.Chan:
		w.add(uint64(v.Len()))
	case reflect.String:
		w.addText(v.String())
	case reflect.Bool:
		if w.add(2); v.Bool() {
			w.add(3)
		}
	case reflect.Float32, reflect.Float64:
		w.add(math.Float64bits(v.Float()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		w.add(uint64(v.Int()))
	default:
		w.add(v.Uint())
	}
}

// isKnown reports whether memory was hashed already, and then adds its number.
func (w *walk) isKnown(v reflect.Value, n int) bool {
	key := visit{v.Pointer(), v.Type(), n}
	number, ok := w.seen[key]
	if !ok {
		number = uint64(len(w.seen))
		w.seen[key] = number
	}
	w.add(number)
	return ok
}

func (w *walk) elements(v reflect.Value) {
	for i := range v.Len() {
		w.value(v.Index(i))
	}
}

// entries hashes the entries of a map in the order of their keys' text. No map of the machine has pointers as keys.
func (w *walk) entries(v reflect.Value) {
	w.add(uint64(v.Len()))
	keys := v.MapKeys()
	if len(keys) > 1 {
		sort.Slice(keys, func(i, j int) bool { return fmt.Sprint(keys[i]) < fmt.Sprint(keys[j]) })
	}
	for _, k := range keys {
		w.value(k)
		w.value(v.MapIndex(k))
	}
}

// isScratch reports whether a type is memory of the protobuf library, which it fills when a message is first read.
func isScratch(t reflect.Type) bool {
	return strings.HasPrefix(t.PkgPath(), "google.golang.org/protobuf")
}

// TestDecideIsSeenToChange: the check finds a change anywhere behind a machine, else it would prove nothing.
func TestDecideIsSeenToChange(t *testing.T) {
	w := newWorld(t, 2)
	w.connect()
	w.joinAll("fresh", nil)
	before := fingerprint(w.m)
	if again := fingerprint(w.m); again != before {
		t.Fatal("two fingerprints of one machine differ")
	}
	for what, change := range map[string]func() (undo func()){
		"the reason for waiting": func() func() {
			w.m.told.Text += "x"
			return func() { w.m.told.Text = strings.TrimSuffix(w.m.told.Text, "x") }
		},
		"a queue": func() func() {
			q := *w.queue("web")
			q.Release(q.First() + 1)
			old := *w.queue("web")
			*w.queue("web") = q
			return func() { *w.queue("web") = old }
		},
		"the state": func() func() { w.m.s.Watermark++; return func() { w.m.s.Watermark-- } },
		"a sealed plan": func() func() {
			p := w.m.s.Sealed[0].Plan
			p.Content[0]++
			return func() { p.Content[0]-- }
		},
	} {
		undo := change()
		if fingerprint(w.m) == before {
			t.Errorf("a change of %s is not seen", what)
		}
		undo()
		if fingerprint(w.m) != before {
			t.Errorf("after %s was put back, another fingerprint", what)
		}
	}
}
