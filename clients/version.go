// Package clients has the version that the program and its Python client share.
package clients

import (
	_ "embed"
	"strings"
)

//go:embed python/src/millrace/VERSION
var version string

// Version returns the version of this source tree, in the form of PEP 440. A release gets its version from its tag.
func Version() string { return strings.TrimSpace(version) }
