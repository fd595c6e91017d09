// Package orchestrator plans, journals and publishes the steps of a run. It mixes, packs, places and seals each step,
// assigns stripes to loaders, opens attempts and keeps the watermark. It never touches a payload byte.
//
// One goroutine owns the [Machine]; handlers send it events. A turn always has the same order:
//
//  1. Observe an event. Facts that a new orchestrator can learn again are not journaled.
//  2. Decide. [Machine.Decide] changes nothing: the state and the observed facts give records and effects.
//  3. Commit the records.
//  4. Apply the decision. This cannot fail.
//  5. Publish: carry out the actions.
//
// A restart reads the newest snapshot and the records after it.
package orchestrator
