package qp

// ring is a bounded queue whose elements can be reached by position.
type ring[T any] struct {
	buf  []T
	head int
	n    int
}

func (r *ring[T]) len() int { return r.n }
func (r *ring[T]) cap() int { return len(r.buf) }

// at returns the element at position i from the oldest.
func (r *ring[T]) at(i int) *T {
	i += r.head
	if i >= len(r.buf) {
		i -= len(r.buf)
	}
	return &r.buf[i]
}

// push adds v as the newest element; there must be room.
func (r *ring[T]) push(v T) {
	r.n++
	*r.at(r.n - 1) = v
}

// insert adds v at position i, which the newer ones make way for; there must be room.
func (r *ring[T]) insert(i int, v T) {
	r.n++
	for k := r.n - 1; k > i; k-- {
		*r.at(k) = *r.at(k - 1)
	}
	*r.at(i) = v
}

// pop drops the oldest element.
func (r *ring[T]) pop() {
	r.head++
	if r.head == len(r.buf) {
		r.head = 0
	}
	r.n--
}

// remove drops the element at position i; the older ones move up.
func (r *ring[T]) remove(i int) {
	for ; i > 0; i-- {
		*r.at(i) = *r.at(i - 1)
	}
	r.pop()
}

func (r *ring[T]) clear() { r.head, r.n = 0, 0 }

// resize makes room for n elements and keeps the newest of the present ones.
func (r *ring[T]) resize(n int) {
	for r.n > n {
		r.pop()
	}
	buf := make([]T, n)
	for i := range r.n {
		buf[i] = *r.at(i)
	}
	r.buf, r.head = buf, 0
}
