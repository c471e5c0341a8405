package certrenewal

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answers are what an authority says at each look.
type answers struct {
	mu    sync.Mutex
	queue []answer
}

type answer struct {
	renewed []string
	err     error
}

func (a *answers) Renew() ([]string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queue) == 0 {
		return nil, nil
	}
	next := a.queue[0]
	a.queue = a.queue[1:]
	return next.renewed, next.err
}

// What was renewed is put to use, again and again until that works; trouble is
// logged when it begins.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("disk full")
		authority := &answers{queue: []answer{
			{}, {renewed: []string{"a"}}, {renewed: []string{"b"}}, {err: full}, {err: full}, {renewed: []string{"c"}, err: full}, {},
		}}
		var used [][]string
		failing := 1
		var log bytes.Buffer
		r := New(Config{
			Authority: authority, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Renewed: func(names []string) error {
				used = append(used, append([]string{}, names...))
				if failing > 0 {
					failing--
					return errors.New("read-only")
				}
				return nil
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		time.Sleep(10 * defaultEvery)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(used, [][]string{{"a"}, {"a", "b"}, {"c"}}); diff != "" {
			t.Error(diff)
		}
		for text, want := range map[string]int{"was renewed": 3, "read-only": 1, "disk full": 1} {
			if got := strings.Count(log.String(), text); got != want {
				t.Errorf("%q was logged %d times, want %d:\n%s", text, got, want, log.String())
			}
		}
	})
}
