package conf

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urxe/urxe/ib"
)

// lines calls f for each line that says something, comments taken off.
func lines(path string, f func(line string) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return readLines(file, path, f)
}

func readLines(r io.Reader, name string, f func(line string) error) error {
	s := bufio.NewScanner(r)
	n := 1
	for ; s.Scan(); n++ {
		line, _, _ := strings.Cut(s.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := f(line); err != nil {
			return fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	return unread(s, name, n)
}

// unread says where a file could not be read on: most often a line is too long.
func unread(s *bufio.Scanner, name string, line int) error {
	if s.Err() == nil {
		return nil
	}
	return fmt.Errorf("%s:%d: %w", name, line, s.Err())
}

// LoadGUIDs reads a root_guid_file: a GUID on each line.
func LoadGUIDs(path string) (guids []ib.GUID, err error) {
	err = lines(path, func(line string) error {
		g, err := ib.ParseGUID(strings.Fields(line)[0])
		guids = append(guids, g)
		return err
	})
	return guids, err
}

// NodeNames are the names that an operator gave to nodes.
type NodeNames map[ib.GUID]string

// LoadNodeNames reads a node_name_map: lines of a GUID and a name in quotes.
func LoadNodeNames(path string) (NodeNames, error) {
	names := NodeNames{}
	return names, lines(path, func(line string) error {
		guid, name, _ := strings.Cut(strings.Replace(line, "\t", " ", 1), " ")
		g, err := ib.ParseGUID(guid)
		if err != nil {
			return err
		}
		name = strings.Trim(strings.TrimSpace(name), `"`)
		if name == "" {
			return fmt.Errorf("no name for %v", g)
		}
		names[g] = name
		return nil
	})
}
