// Package growing finds the change of a source's files between a saved state and a mixture file.
package growing
