package main

import (
	"os"
	"strings"
	"testing"
)

func Example() {
	main()
	// Output:
	// RECV of 5 bytes: hello
	// WRITE: success, first byte there 'w'
}

// README shows this program as it is here.
func TestReadmeShowsIt(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```go\n"+string(program)+"```\n") {
		t.Error("README.md does not show examples/hello/main.go: copy it there")
	}
}
