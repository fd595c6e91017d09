package feed

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// TestOneMutex: the package has one mutex, and only feed.go, fetch.go, places.go and standby.go lock it. The types that
// hold the state have no access to it, so none of them can take it twice or in another order. Every lock is paired with
// Feed.unlock, which gives the signals.
func TestOneMutex(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	mayLock := map[string]bool{"feed.go": true, "fetch.go": true, "places.go": true, "standby.go": true}
	mutexes, unlocks := 0, 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), e.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch sel.Sel.Name {
			case "Mutex", "RWMutex":
				mutexes++
			case "Lock", "TryLock", "RLock", "mu", "unlock":
				if !mayLock[e.Name()] {
					t.Errorf("%s uses %s: state takes no lock", e.Name(), sel.Sel.Name)
				}
			case "Unlock":
				unlocks++
			}
			return true
		})
	}
	if mutexes != 1 || unlocks != 1 {
		t.Errorf("%d mutexes, %d calls of Unlock; want one of each", mutexes, unlocks)
	}
}
