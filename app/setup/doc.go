// Package setup turns a validated mixture file into the inputs of the other packages: the planner's spec, the sources'
// specs, the placing and the identity. No other package translates the configuration.
package setup
