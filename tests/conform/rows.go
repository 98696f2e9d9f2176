package conform

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
)

// row is a rule of the table.
type row struct {
	id     string
	clause string // of the specification, or the report
	rule   string
	cannot string // why it can't apply here; empty when it can
}

// section is a part of the table, with its title.
type section struct {
	title string
	rows  []row
}

//go:embed rows.txt
var rowsText string

var table = sync.OnceValues(func() ([]section, error) { return parseRows(rowsText) })

// parseRows reads the table; rows.txt says what it looks like.
func parseRows(text string) (sections []section, err error) {
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		title, isTitle := strings.CutPrefix(line, "## ")
		switch {
		case isTitle:
			sections = append(sections, section{title: title})
		case line == "" || line[0] == '#':
		default:
			r, err := parseRow(line)
			if err != nil || seen[r.id] || sections == nil {
				return nil, fmt.Errorf("rows.txt: %q: %v; want a row below a title, with an id of its own", line, err)
			}
			seen[r.id] = true
			last := &sections[len(sections)-1]
			last.rows = append(last.rows, r)
		}
	}
	return sections, nil
}

func parseRow(line string) (r row, err error) {
	f := strings.Split(line, " | ")
	if len(f) < 3 || len(f) > 4 {
		return r, fmt.Errorf("%d fields, want id | clause | rule, and the reason where it can't apply", len(f))
	}
	r = row{id: f[0], clause: f[1], rule: f[2]}
	if len(f) == 4 {
		r.cannot = f[3]
	}
	return r, nil
}

// named returns the ids that a claim names: an id in full, or, before a star,
// what several have in common. There are none when no row has that name.
func named(known map[string]*row, name string) (ids []string) {
	prefix, several := strings.CutSuffix(name, "*")
	if !several {
		if known[name] != nil {
			ids = append(ids, name)
		}
		return ids
	}
	for id := range known {
		if prefix != "" && strings.HasPrefix(id, prefix) {
			ids = append(ids, id)
		}
	}
	return ids
}

// ids returns the rows by their ids.
func ids(sections []section) map[string]*row {
	m := map[string]*row{}
	for i := range sections {
		for j := range sections[i].rows {
			r := &sections[i].rows[j]
			m[r.id] = r
		}
	}
	return m
}
