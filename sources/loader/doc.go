// Package loader is the loader process: it opens the sources it is told to, reads their stripes ahead, offers what it
// finds to the orchestrator and serves payload to constructors. What a sample is drawn for it never knows.
package loader
