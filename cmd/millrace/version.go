package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"millrace/orchestrator/planner/progress"
)

// version is set by the linker for releases.
var version = ""

// programVersion is the release, or the revision the binary was built from.
func programVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "version", Short: "Print the version of the program, its planner and Go", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v := map[string]any{"millrace": programVersion(), "planner": progress.PlannerVersion, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(v)
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "millrace %s, planner %d, %s %s/%s\n", v["millrace"], v["planner"], v["go"], v["os"], v["arch"])
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}
