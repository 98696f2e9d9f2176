// Package steps lets tests make each step of an open of many steps fail: so they
// see whether it undoes those before it.
package steps

// Fail, set by tests, makes a step fail with the error that it returns.
var Fail func(op string) error

// Do takes a step, which has the name that errors give it.
func Do(op string, f func() error) error {
	if Fail != nil {
		if err := Fail(op); err != nil {
			return err
		}
	}
	return f()
}
