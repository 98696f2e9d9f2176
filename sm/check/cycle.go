package check

import "fmt"

// cycle searches the channel dependencies of one lane depth first and returns a
// loop as text, or nil.
func (w *walker) cycle(lane uint16) []string {
	const done = 2
	color := make([]uint8, w.g.Links())
	at := make([]int32, w.g.Links()) // by link on the path: the next dependency to try
	var path []int32
	for root := range int32(len(color)) {
		if color[root] != 0 {
			continue
		}
		color[root] = 1
		for path = append(path[:0], root); len(path) > 0; {
			e := path[len(path)-1]
			next, more := w.after(e, &at[e], lane)
			switch {
			case !more:
				color[e] = done
				path = path[:len(path)-1]
			case color[next] == 1:
				return w.describe(path, next)
			case color[next] == 0:
				color[next] = 1
				path = append(path, next)
			}
		}
	}
	return nil
}

// after returns the next link that e depends on in a lane, from place *at on.
func (w *walker) after(e int32, at *int32, lane uint16) (int32, bool) {
	t := w.g.To[e]
	for first := w.g.First[t]; first+*at < w.g.First[t+1]; {
		i := *at
		*at++
		if w.dep[int(e)*w.degree+int(i)]&lane != 0 {
			return first + i, true
		}
	}
	return 0, false
}

// describe names the part of path that begins at the link met again.
func (w *walker) describe(path []int32, again int32) (loop []string) {
	i := len(path) - 1
	for path[i] != again {
		i--
	}
	for _, e := range path[i:] {
		loop = append(loop, fmt.Sprintf("%q[%d]", w.g.Desc(w.g.From[e]), w.g.Port[e]))
	}
	return loop
}
