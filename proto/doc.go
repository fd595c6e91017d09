// Package proto has the messages and services of all roles, and the journal's records. `make generate` generates it.
package proto
