package check

import "fmt"

// cycle searches the channel dependencies of one lane depth first and returns a
// loop as text, or nil.
func (s *State) cycle(lane int) []string {
	const done = 2
	color := make([]uint8, s.g.Links())
	at := make([]int32, s.g.Links()) // by link on the path: the next dependency to try
	var path []int32
	for root := range int32(len(color)) {
		if color[root] != 0 {
			continue
		}
		color[root] = 1
		for path = append(path[:0], root); len(path) > 0; {
			e := path[len(path)-1]
			next, more := s.after(e, &at[e], lane)
			switch {
			case !more:
				color[e] = done
				path = path[:len(path)-1]
			case color[next] == 1:
				return s.describe(path, next)
			case color[next] == 0:
				color[next] = 1
				path = append(path, next)
			}
		}
	}
	return nil
}

// after returns the next link that e depends on in a lane, from place *at on.
func (s *State) after(e int32, at *int32, lane int) (int32, bool) {
	t := s.g.To[e]
	in := s.g.Port[s.g.Rev[e]]
	for first := s.g.First[t]; first+*at < s.g.First[t+1]; {
		f := first + *at
		*at++
		if s.dep[s.cell(t, in, s.g.Port[f])+lane] != 0 {
			return f, true
		}
	}
	return 0, false
}

// describe names the part of path that begins at the link met again.
func (s *State) describe(path []int32, again int32) (loop []string) {
	i := len(path) - 1
	for path[i] != again {
		i--
	}
	for _, e := range path[i:] {
		loop = append(loop, fmt.Sprintf("%q[%d]", s.g.Desc(s.g.From[e]), s.g.Port[e]))
	}
	return loop
}
