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

// README shows the main part of this program as it is here.
func TestReadmeShowsIt(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, from, _ := strings.Cut(string(program), "func main() {\n")
	body, _, found := strings.Cut(from, "\n}\n")
	if !found || !strings.Contains(string(readme), "```go\nfunc main() {\n"+body+"\n}\n```\n") {
		t.Error("README.md does not show func main of examples/hello/main.go: copy it there")
	}
}
