package topotest

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

var (
	nodeLine = regexp.MustCompile(`^(Switch|Hca|Ca)\s+(\d+)\s+"([^"]+)"`)
	portLine = regexp.MustCompile(`^\[(\d+)\]\s*"([^"]+)"\[(\d+)\]`)
)

// Load reads the plain kind of netfile that Netfile writes. ib/fabric has the
// reader for the whole grammar.
func Load(path string) (*Net, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	n := &Net{}
	var cur *node
	for i, line := range strings.Split(string(text), "\n") {
		if m := nodeLine.FindStringSubmatch(line); m != nil {
			ports, _ := strconv.Atoi(m[2])
			n.add(m[3], m[1] == "Switch", ports)
			cur = n.by[m[3]]
		} else if m := portLine.FindStringSubmatch(line); m != nil && cur != nil {
			p, _ := strconv.Atoi(m[1])
			q, _ := strconv.Atoi(m[3])
			cur.links[p] = end{m[2], q}
		} else if strings.TrimSpace(line) != "" {
			return nil, fmt.Errorf("%s:%d: %q", path, i+1, line)
		}
	}
	return n, nil
}
