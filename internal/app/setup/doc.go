// Package setup turns a validated mixture file into what each room takes: the planner's spec, the sources' specs, the placing and the
// identity. It is the one place where the configuration's words meet the rooms' words.
package setup
