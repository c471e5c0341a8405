package volumeplugin

import "sync"

// locks lets one goroutine at a time work on what a key names, and forgets keys
// that nobody has. The zero value is ready.
type locks struct {
	mu struct {
		sync.Mutex
		held map[string]*held
	}
}

type held struct {
	sync.Mutex
	users int
}

// lock waits for the key and returns what gives it back.
func (l *locks) lock(key string) (unlock func()) {
	l.mu.Lock()
	if l.mu.held == nil {
		l.mu.held = map[string]*held{}
	}
	own := l.mu.held[key]
	if own == nil {
		own = &held{}
		l.mu.held[key] = own
	}
	own.users++
	l.mu.Unlock()
	own.Lock()
	return func() {
		own.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(l.mu.held, key)
		}
	}
}
