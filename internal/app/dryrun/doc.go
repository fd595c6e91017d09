// Package dryrun reads and plans a mixture inside one process, without a run: the same sources, offers, selection and placement as a
// run has, so that what it shows is what a run delivers.
//
// [Open] opens the sources, [Opened.Scan] reads their files to the end, [Opened.Walk] plans from step 0 on, and [Forecast] says what
// lies beyond the planned steps.
package dryrun
