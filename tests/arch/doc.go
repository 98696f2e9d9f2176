// Package arch holds the rules of the module that no compiler knows, as tests:
// which package may import which, what only some may use, how long functions
// are, what generated files look like.
package arch
