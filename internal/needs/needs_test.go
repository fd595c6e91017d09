package needs

import (
	"os/exec"
	"strings"
	"testing"
)

// skipper notes why a test skips.
type skipper struct{ why string }

func (s *skipper) Helper() {}

func (s *skipper) Skip(args ...any) { s.why, _ = args[0].(string) }

// TestEachNeedIsHidden hides each need in turn: a test that needs it skips, and its reason is accepted. A reason whose
// need is there is refused.
func TestEachNeedIsHidden(t *testing.T) {
	if len(Table()) < 20 {
		t.Fatalf("the table has %d needs", len(Table()))
	}
	for name, n := range Table() {
		t.Run(name, func(t *testing.T) {
			if out, err := exec.Command("bash", "-n", "-c", n.Probe).CombinedOutput(); n.Probe == "" || err != nil {
				t.Errorf("the probe %q: %v, %s", n.Probe, err, out)
			}
			isHere := n.IsHere()
			if why := Refuse("x_test.go:7: " + n.Reason()); strings.Contains(why, "which is there") != isHere {
				t.Errorf("is there: %v; refused: %q", isHere, why)
			}
			t.Setenv(Hidden, "first "+name+" last")
			s := &skipper{}
			Require(s, name)
			if s.why != n.Reason() || Refuse(s.why) != "" {
				t.Errorf("skips because %q, which is refused: %q", s.why, Refuse(s.why))
			}
		})
	}
}

func TestOtherReasonsAreRefused(t *testing.T) {
	for _, words := range []string{"", "no reason", "needs a break", "needs unknown: get one"} {
		if Refuse(words) == "" {
			t.Errorf("%q is accepted", words)
		}
	}
}

// TestHiddenPrograms: without the program in PATH, the probe of a program fails.
func TestHiddenPrograms(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range Table() {
		if n.Probe != "command -v "+name {
			continue
		}
		probe := exec.Command(bash, "-c", n.Probe)
		probe.Env = []string{"PATH=" + t.TempDir()}
		if probe.Run() == nil {
			t.Errorf("%s is found in an empty folder", name)
		}
	}
}
