package server

import (
	"sync"
	"time"
)

// maxCached bounds a cache: past it, the cache starts anew.
const maxCached = 1000

// cache keeps answers for a while. It may be used by many goroutines.
type cache[K comparable, V any] struct {
	mu      sync.Mutex // guards entries
	entries map[K]cached[V]
}

type cached[V any] struct {
	value V
	until time.Time
}

func newCache[K comparable, V any]() *cache[K, V] {
	return &cache[K, V]{entries: map[K]cached[V]{}}
}

func (c *cache[K, V]) get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry, ok := c.entries[key]
	if ok && time.Now().After(entry.until) {
		delete(c.entries, key)
		ok = false
	}
	if !ok {
		var zero V
		return zero, false
	}
	return entry.value, true
}

func (c *cache[K, V]) put(key K, value V, ttl time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) >= maxCached {
		clear(c.entries)
	}
	c.entries[key] = cached[V]{value, time.Now().Add(ttl)}
}
