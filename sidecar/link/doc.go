// Package link ties a sidecar to the rest of the run: to the orchestrator, from which plans come and to which commits go, and to the
// loaders, from which payload comes. It hides that either may be restarted: it waits, says what for, and goes on.
package link
