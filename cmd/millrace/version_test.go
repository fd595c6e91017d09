package main

import (
	"bytes"
	"runtime/debug"
	"strings"
	"testing"

	"millrace/clients"
)

func TestVersionOfABuild(t *testing.T) {
	stamped := []debug.BuildSetting{{Key: "vcs.revision", Value: "c06da7837f5727ed2b3f"}}
	revised := clients.Version() + "+gc06da7837f57"
	for name, c := range map[string]struct {
		module   string
		settings []debug.BuildSetting
		want     string
	}{
		"checkout of a tag":         {"v1.2.3", stamped, "1.2.3"},
		"changed checkout of a tag": {"v1.2.3+dirty", stamped, revised},
		"checkout after a tag":      {"v1.2.4-0.20261122101700-c06da7837f57", stamped, revised},
		"source archive":            {"(devel)", nil, clients.Version()},
	} {
		info := &debug.BuildInfo{Main: debug.Module{Version: c.module}, Settings: c.settings}
		if got := builtVersion(info); got != c.want {
			t.Errorf("%s: version %s, want %s", name, got, c.want)
		}
	}
	if v := clients.Version(); v == "" || strings.ContainsAny(v, " \n") {
		t.Errorf("the file VERSION has %q", v)
	}
}

// TestVersionFlag: `--version` prints what `version` prints.
func TestVersionFlag(t *testing.T) {
	var said []string
	for _, args := range [][]string{{"version"}, {"--version"}, {"-v"}} {
		var out bytes.Buffer
		root := rootCommand()
		root.SetArgs(args)
		root.SetOut(&out)
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		said = append(said, out.String())
	}
	if said[0] != said[1] || said[0] != said[2] || !strings.HasPrefix(said[0], "millrace ") {
		t.Errorf("got %q", said)
	}
}
