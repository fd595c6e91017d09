// Package loader is the loader process. It opens the sources that the orchestrator names, reads their stripes ahead,
// offers the documents to the orchestrator, and serves their tokens to constructors. It sees no plans.
package loader
