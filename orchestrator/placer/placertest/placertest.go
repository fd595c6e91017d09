// Package placertest is the contract of every placer.Placer, as tests.
package placertest

import (
	"testing"
	"time"

	"millrace/orchestrator/placer"
)

// Engine is an engine under test, and the hands of the test on its processes. Safe for concurrent use.
type Engine struct {
	Placer placer.Placer
	Name   string // errors name the engine so, such as "kubernetes"
	Role   string // a role with room for Room processes
	Beside string // another role with room for two processes; "": the engine has none
	Hosts  int    // hosts that the engine has
	// Spread is a goal with Apart, for some of several hosts. nil: the engine keeps no processes apart.
	Spread *placer.Wanted
	// Identity returns the mark of the process of an instance. No other process has the same mark, at any time.
	Identity func(name string) (string, error)
	// Kill ends the process of an instance without asking it to leave.
	Kill func(name string) error
	// Asked reports whether a process was asked to leave.
	Asked    func(identity string) bool
	Patience time.Duration // bound of a wait for the engine; 0: 30 s
	Calm     time.Duration // nothing may change for so long; 0: 300 ms
}

// Room is the number of processes of Engine.Role for which the engine must have room.
const Room = 4

// promises returns the checks, by name. Each begins in any state that another one left.
func promises() map[string]func(*check) error {
	return map[string]func(*check) error{
		"it runs as many as wanted":             (*check).runs,
		"the same goal changes nothing":         (*check).repeats,
		"more are added to those that exist":    (*check).grows,
		"the highest are asked and leave":       (*check).shrinks,
		"it runs none":                          (*check).runsNone,
		"a dead process comes back":             (*check).restarts,
		"roles that are not listed stay":        (*check).others,
		"a refused goal changes nothing":        (*check).refuses,
		"a cancelled request changes nothing":   (*check).cancelled,
		"goals from several callers":            (*check).concurrent,
		"processes stay apart":                  (*check).apart,
		"a process that cannot be apart waits":  (*check).crowded,
		"a process that leaves is not replaced": (*check).leaves,
	}
}

// Run tests the promises of an engine. newEngine makes one for all of them.
func Run(t *testing.T, newEngine func(t *testing.T) Engine) {
	e := newEngine(t)
	for name, promise := range promises() {
		t.Run(name, func(t *testing.T) {
			if err := promise(newCheck(t.Context(), e)); err != nil {
				t.Error(err)
			}
		})
	}
}
