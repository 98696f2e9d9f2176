package main

import "testing"

func TestInMemory(t *testing.T) {
	if err := run("", "", 3, 64); err != nil {
		t.Error(err)
	}
}

func TestNoSuchInterface(t *testing.T) {
	if err := run("no-such-dev0", "no-such-dev1", 1, 1); err == nil {
		t.Error("it opened an interface that isn't there")
	}
}
