package idmap

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m Map[int]
		model := map[uint32]*int{}
		// Few ids, some that collide, so that removed ones come back.
		ids := rapid.SampledFrom([]uint32{0, 1, 2, 3, 16, 32, 0xffffff, 1 << 31, 0xffffffff, 77, 78, 79})
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				id, v := ids.Draw(t, "id"), new(int)
				if got, want := m.Insert(id, v), model[id] == nil; got != want {
					t.Fatalf("Insert(%d) = %v, want %v", id, got, want)
				}
				if model[id] == nil {
					model[id] = v
				}
			},
			"insertMany": func(t *rapid.T) {
				for range rapid.IntRange(1, 200).Draw(t, "n") {
					v := new(int)
					id, err := m.InsertRandom(1000, 5000, func(uint32) *int { return v })
					if err != nil || model[id] != nil {
						t.Fatalf("InsertRandom = %d, %v; in use: %v", id, err, model[id] != nil)
					}
					model[id] = v
				}
			},
			"replace": func(t *rapid.T) {
				id, v := ids.Draw(t, "id"), new(int)
				if got, want := m.Replace(id, v), model[id] != nil; got != want {
					t.Fatalf("Replace(%d) = %v, want %v", id, got, want)
				}
				if model[id] != nil {
					model[id] = v
				}
			},
			"delete": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				if got := m.Delete(id); got != model[id] {
					t.Fatalf("Delete(%d) = %p, want %p", id, got, model[id])
				}
				delete(model, id)
			},
			"deleteMany": func(*rapid.T) {
				for id := range model {
					if id >= 1000 && id <= 5000 {
						m.Delete(id)
						delete(model, id)
					}
				}
			},
			"": func(t *rapid.T) { compare(t, &m, model) },
		})
	})
}

func compare(t *rapid.T, m *Map[int], model map[uint32]*int) {
	if m.Len() != len(model) {
		t.Fatalf("Len = %d, want %d", m.Len(), len(model))
	}
	for id, v := range model {
		if m.Get(id) != v {
			t.Fatalf("Get(%d) = %p, want %p", id, m.Get(id), v)
		}
	}
	seen := 0
	m.Range(func(id uint32, v *int) bool {
		if model[id] != v {
			t.Fatalf("Range: %d has %p, want %p", id, v, model[id])
		}
		seen++
		return true
	})
	if seen != len(model) {
		t.Fatalf("Range saw %d entries, want %d", seen, len(model))
	}
}

// Readers must find the entries that stay, whatever comes and goes around them.
func TestReadersWhileWritersChurn(t *testing.T) {
	var m Map[uint32]
	stay := make([]uint32, 100)
	for i := range stay {
		stay[i] = uint32(i * 7)
		m.Insert(stay[i], &stay[i])
	}
	done := make(chan struct{})
	var readers, writers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				for i := range stay {
					if v := m.Get(stay[i]); v != &stay[i] {
						t.Errorf("Get(%d) = %v during changes", stay[i], v)
						return
					}
				}
				m.Range(func(id uint32, v *uint32) bool {
					if *v != id {
						t.Errorf("Range: id %d with the value of %d", id, *v)
					}
					return true
				})
			}
		})
	}
	for w := range uint32(2) {
		writers.Go(func() {
			for range 20 {
				ids := make([]uint32, 500) // readers may hold those of the last round
				for i := range ids {
					ids[i] = 1000 + uint32(i)*2 + w
					m.Insert(ids[i], &ids[i])
				}
				for i := range ids {
					m.Delete(ids[i])
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	if m.Len() != len(stay) {
		t.Fatalf("Len = %d, want %d", m.Len(), len(stay))
	}
}

func TestRemovedEntriesDontFillTheTable(t *testing.T) {
	var m Map[int]
	for id := range uint32(100000) {
		m.Insert(id, new(int))
		m.Delete(id)
	}
	if n := len(m.table.Load().slots); n > minSlots {
		t.Fatalf("%d slots for no entry", n)
	}
}

func TestInsertRandomTakesTheLastFreeID(t *testing.T) {
	var m Map[int]
	make := func(uint32) *int { return new(int) }
	for i := range 5000 {
		id, err := m.InsertRandom(10, 5009, make)
		if err != nil || id < 10 || id > 5009 {
			t.Fatalf("insertion %d: id %d, %v", i, id, err)
		}
	}
	if id, err := m.InsertRandom(10, 5009, make); err == nil {
		t.Fatalf("got id %d, though all are in use", id)
	}
	if id, err := m.InsertRandom(2, 1, make); err == nil {
		t.Fatalf("got id %d of an empty range", id)
	}
}

func TestQuarantine(t *testing.T) {
	var m Map[int]
	m.Quarantine(3)
	make := func(uint32) *int { return new(int) }
	for id := range uint32(4) {
		m.Insert(id, new(int))
	}
	for id := range uint32(4) {
		m.Delete(id)
	}
	// 1, 2 and 3 were deleted after 0.
	if id, err := m.InsertRandom(0, 3, make); err != nil || id != 0 {
		t.Fatalf("InsertRandom = %d, %v; want 0", id, err)
	}
	if id, err := m.InsertRandom(0, 3, make); err == nil {
		t.Fatalf("id %d came back at once", id)
	}
	m.Delete(0)
	if id, err := m.InsertRandom(0, 3, make); err != nil || id != 1 {
		t.Fatalf("InsertRandom = %d, %v; want 1, which left quarantine", id, err)
	}
}

func TestGetDoesNotAllocate(t *testing.T) {
	var m Map[int]
	m.Insert(5, new(int))
	if n := testing.AllocsPerRun(100, func() { m.Get(5); m.Get(6) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkGet(b *testing.B) {
	var m Map[int]
	ids := make([]uint32, 0, 1024)
	for range 1024 {
		id, _ := m.InsertRandom(0, 1<<24-1, func(uint32) *int { return new(int) })
		ids = append(ids, id)
	}
	for i := 0; b.Loop(); i++ {
		if m.Get(ids[i&1023]) == nil {
			b.Fatal("lost")
		}
	}
}
