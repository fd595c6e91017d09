// Package orchestrator decides: it mixes, packs, places, seals and journals every step, places loaders, opens attempts and keeps the
// watermark. It never touches a payload byte.
//
// One goroutine owns the [Machine]; handlers send it events. A turn is always the same: observe the event (what can be learnt again
// is not journaled), decide (pure: state and what was observed give records), commit the records, apply them (cannot fail), publish
// them. A restart is the newest snapshot and the records after it.
package orchestrator
