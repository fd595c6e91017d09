package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"millrace/orchestrator/planner/progress"
)

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
			_, err := fmt.Fprintf(
				c.OutOrStdout(), "millrace %s, planner %d, %s %s/%s\n", v["millrace"], v["planner"], v["go"], v["os"],
				v["arch"],
			)
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}
