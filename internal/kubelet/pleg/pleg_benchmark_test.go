package pleg

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// BenchmarkRelist measures two lists and everything until the last event of
// what changed is received, without a wire.
func BenchmarkRelist(b *testing.B) {
	for _, pods := range []int{110, 500, 2000} {
		for _, takes := range []time.Duration{0, 2 * time.Millisecond} {
			for _, changed := range []int{0, 1, pods} {
				b.Run(fmt.Sprintf("pods=%d/inspect=%v/changed=%d", pods, takes, changed), func(b *testing.B) {
					benchmarkRelist(b, pods, changed, takes)
				})
			}
		}
	}
}

func benchmarkRelist(b *testing.B, pods, changed int, takes time.Duration) {
	runtime := newScripted()
	runtime.noEvents = true
	uids := make([]types.UID, pods)
	for i := range uids {
		uids[i] = types.UID(fmt.Sprintf("pod-%d", i))
		runtime.set(uids[i], fmt.Sprintf("sandbox-%d", i), observed.Running)
		runtime.set(uids[i], fmt.Sprintf("container-%d", i), observed.Running)
	}
	runtime.gate = make(chan struct{})
	g := New(Config{Runtime: runtime, Cache: observed.NewCache(), Period: time.Nanosecond, SlowPeriod: time.Nanosecond})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	runtime.gate <- struct{}{}
	for range pods {
		<-g.Events()
	}
	runtime.do(func() { runtime.takes = takes })
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		state := []observed.State{observed.Exited, observed.Running}[n%2]
		for _, uid := range uids[:changed] {
			runtime.set(uid, "container-"+string(uid[len("pod-"):]), state)
		}
		// The list that waits at the gate began before this round, so what it
		// shows may be older than what is known; the next one counts.
		runtime.gate <- struct{}{}
		runtime.gate <- struct{}{}
		for range changed {
			<-g.Events()
		}
	}
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
