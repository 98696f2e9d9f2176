// Package clock is the one place that reads the time. The protocol core takes
// the time as an argument, so that simulations run in a time of their own.
package clock

import "time"

// Time is a monotonic time in nanoseconds from an arbitrary start. Zero is
// before every reading of Now; as a deadline it means none.
type Time int64

// Never is the deadline that does not come.
const Never Time = 1<<63 - 1

// start lies a century back, so that the fake time of testing/synctest, which
// begins in the year 2000, comes after it, too.
var start = time.Now().Add(-100 * 365 * 24 * time.Hour)

// Now returns the present monotonic time.
func Now() Time { return Time(time.Since(start)) }

// Add returns t moved by d.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub returns the time from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Wall returns the time of day: for time stamps of captures, and for deadlines
// that package net wants in this form.
func Wall() time.Time { return time.Now() }
