// Package dryrun reads and plans a mixture in one process, without a run. It uses the sources, offers, selection and
// placement of a run, so its plans are those of a run.
//
// [Open] opens the sources, [Opened.Scan] reads their files to the end, [Opened.Walk] plans from step 0 on, and
// [Forecast] estimates the steps after the planned ones.
package dryrun
