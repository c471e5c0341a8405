package podworker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// fakeSyncer records the steps it is asked for. What a step does is set by its
// UID and step: "ok" (the default), "terminal", "block" (until its context is
// cancelled or it is released), or an error's text.
type fakeSyncer struct {
	t *testing.T

	mu      sync.Mutex
	log     []string
	answers map[string]string        // uid + " " + step
	release map[string]chan struct{} // of blocked steps
	busy    map[types.UID]bool
}

func newFakeSyncer(t *testing.T) *fakeSyncer {
	return &fakeSyncer{
		t: t, answers: map[string]string{}, release: map[string]chan struct{}{}, busy: map[types.UID]bool{},
	}
}

func (f *fakeSyncer) SyncPod(ctx context.Context, pod, mirror *v1.Pod, _ *observed.Status) (bool, error) {
	detail := " gen=" + fmt.Sprint(pod.Generation)
	if mirror != nil {
		detail += " mirror=" + string(mirror.UID)
	}
	answer, err := f.step(ctx, pod.UID, "sync", detail)
	return answer == "terminal", err
}

func (f *fakeSyncer) SyncTerminating(ctx context.Context, pod *v1.Pod, _ *observed.Status, grace *int64) error {
	_, err := f.step(ctx, pod.UID, "terminating", fmt.Sprintf(" grace=%d", *grace))
	return err
}

func (f *fakeSyncer) SyncTerminated(ctx context.Context, pod *v1.Pod, _ *observed.Status) error {
	_, err := f.step(ctx, pod.UID, "terminated", "")
	return err
}

func (f *fakeSyncer) SyncRemains(ctx context.Context, pod *v1.Pod, _ *observed.Status) error {
	_, err := f.step(ctx, pod.UID, "remains", "")
	return err
}

func (f *fakeSyncer) SyncOrphan(ctx context.Context, orphan observed.Pod) error {
	_, err := f.step(ctx, orphan.UID, "orphan", "")
	return err
}

// steps returns what was asked until now.
func (f *fakeSyncer) steps() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log)
}

func (f *fakeSyncer) step(ctx context.Context, uid types.UID, step, detail string) (string, error) {
	key := string(uid) + " " + step
	f.mu.Lock()
	if f.busy[uid] {
		f.t.Errorf("%s: two steps of one pod at once", key)
	}
	f.busy[uid] = true
	answer := f.answers[key]
	line := key + detail
	if answer != "" {
		line += ": " + answer
	}
	f.log = append(f.log, line)
	var released chan struct{}
	if answer == "block" {
		released = make(chan struct{})
		f.release[key] = released
	}
	f.mu.Unlock()

	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.busy[uid] = false
	}()
	switch answer {
	case "", "ok", "terminal":
		return answer, nil
	case "block":
		select {
		case <-ctx.Done():
			f.note(key + " cancelled")
			return "", ctx.Err()
		case <-released:
			f.note(key + " released")
			return "", nil
		}
	default:
		return "", fmt.Errorf("%s", answer)
	}
}

func (f *fakeSyncer) note(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, line)
}

func (f *fakeSyncer) answer(key, answer string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[key] = answer
}

func (f *fakeSyncer) unblock(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.release[key])
	delete(f.answers, key)
}

// take returns what was recorded since the last call.
func (f *fakeSyncer) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	log := f.log
	f.log = nil
	return log
}

// freshCache has a status of every pod that is as new as anybody wants.
type freshCache struct{}

func (freshCache) GetNewerThan(_ context.Context, uid types.UID, _ time.Time) (*observed.Status, error) {
	return &observed.Status{UID: uid, Time: time.Now()}, nil
}

func testPod(uid, name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "default", Name: name},
		Spec:       v1.PodSpec{TerminationGracePeriodSeconds: new(int64(30))},
	}
}
