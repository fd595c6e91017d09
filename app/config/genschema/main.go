// Command genschema writes mixture.schema.json, by which editors complete and check mixture files, from the Go types of
// package config: keys from their yaml tags, bounds from their jsonschema tags, descriptions from their comments.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
)

//go:generate go run . -o ../../../mixture.schema.json

func main() {
	out := flag.String("o", "mixture.schema.json", "file to write")
	flag.Parse()
	if err := write(*out); err != nil {
		fmt.Fprintln(os.Stderr, "genschema:", err)
		os.Exit(1)
	}
}

func write(out string) error {
	b, err := generate(configDir)
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, b, 0o644); err != nil {
		return fmt.Errorf("write schema: %w", err)
	}
	return nil
}

// generate returns the schema as indented JSON; dir is the folder of package config, relative to this one.
func generate(dir string) ([]byte, error) {
	s, err := build(dir)
	if err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write schema: %w", err)
	}
	return append(b, '\n'), nil
}
