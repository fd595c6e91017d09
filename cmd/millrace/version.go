package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"millrace/clients"
	"millrace/orchestrator/planner/progress"
)

// version is set by the linker for wheels and images.
var version = ""

// programVersion returns the version in the form of PEP 440. The linker's value comes first. A build in a checkout of a
// tag has the tag's version; every other build has the version of the source tree and, if Go knows it, the revision.
func programVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return clients.Version()
	}
	return builtVersion(info)
}

var releaseTag = regexp.MustCompile(`^v(\d+\.\d+\.\d+)$`)

func builtVersion(info *debug.BuildInfo) string {
	if tag := releaseTag.FindStringSubmatch(info.Main.Version); tag != nil {
		return tag[1]
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return clients.Version() + "+g" + s.Value[:12]
		}
	}
	return clients.Version()
}

// versionLine is the version for people.
func versionLine() string {
	return fmt.Sprintf("millrace %s, planner %d, %s %s/%s\n", programVersion(), progress.PlannerVersion,
		runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "version", Short: "Print the version of the program, its planner and Go", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v := map[string]any{
				"millrace": programVersion(),
				"planner":  progress.PlannerVersion,
				"go":       runtime.Version(),
				"os":       runtime.GOOS,
				"arch":     runtime.GOARCH,
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(v)
			}
			_, err := io.WriteString(c.OutOrStdout(), versionLine())
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}
