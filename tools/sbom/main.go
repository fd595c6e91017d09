// Command sbom prints the bill of materials of a Go binary, as CycloneDX JSON. Equal binaries give equal bytes.
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY VERSION")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// write lists the modules that the linker recorded in the binary. Version is the binary's own.
func write(out io.Writer, binary, version string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("read the modules of %s: %w", binary, err)
	}
	bom := cdx.NewBOM()
	main := cdx.Component{
		BOMRef: "millrace", Type: cdx.ComponentTypeApplication, Name: "millrace", Version: version,
		Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
	}
	bom.Metadata = &cdx.Metadata{Component: &main}
	components := []cdx.Component{library("std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, dep := range info.Deps {
		component, err := module(dep)
		if err != nil {
			return fmt.Errorf("read the checksum of %s in %s: %w", dep.Path, binary, err)
		}
		components = append(components, component)
	}
	refs := []string{}
	for _, c := range components {
		refs = append(refs, c.BOMRef)
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	return cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
}

// module returns a module with the checksum of its files, as go.sum has it.
func module(m *debug.Module) (cdx.Component, error) {
	if m.Replace != nil {
		m = m.Replace
	}
	c := library(m.Path, m.Version)
	if sum, found := strings.CutPrefix(m.Sum, "h1:"); found {
		digest, err := base64.StdEncoding.DecodeString(sum)
		if err != nil {
			return c, err
		}
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", digest)}}
	}
	return c, nil
}

func library(path, version string) cdx.Component {
	url := "pkg:golang/" + path + "@" + version
	return cdx.Component{
		BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url,
	}
}
