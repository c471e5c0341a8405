package faultevents

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeEvents keeps events, and fails as told.
type fakeEvents struct {
	mu     sync.Mutex
	fail   error
	names  map[string]bool
	events []string
}

func (f *fakeEvents) Create(_ context.Context, e *corev1.Event, _ metav1.CreateOptions) (*corev1.Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return nil, f.fail
	}
	if f.names[e.Name] {
		return nil, apierrors.NewAlreadyExists(corev1.Resource("events"), e.Name)
	}
	f.names[e.Name] = true
	f.events = append(f.events, e.InvolvedObject.Kind+" "+e.InvolvedObject.Name+" "+e.Type+" "+e.Reason+" "+e.Message)
	return e, nil
}

func (f *fakeEvents) failWith(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

func (f *fakeEvents) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	events := f.events
	f.events = nil
	return events
}

func TestRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &fakeEvents{names: map[string]bool{}}
		r := New(Config{Node: "n1", Events: events, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		want := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(events.take(), want); diff != "" {
				t.Errorf("events (-got +want):\n%s", diff)
			}
		}
		fault := manifest.Fault{File: "a.yaml", Line: 3, Reason: manifest.ReasonSyntax, Message: "bad", Since: time.Now()}
		duplicate := manifest.Fault{File: "b.yaml", Line: 1, Kind: "Pod", Namespace: "default", Name: "web", Reason: manifest.ReasonDuplicate, Message: "twice"}
		const warn = "Node n1 Warning InvalidManifest a.yaml:3: bad"
		const heal = "Node n1 Normal ManifestHealed good again, or gone: a.yaml:3: bad"

		r.Update("folder", []manifest.Fault{fault})
		want(warn)
		moved := fault
		moved.Line, moved.Since = 9, time.Now().Add(time.Hour)
		r.Update("folder", []manifest.Fault{moved})
		want()
		r.Update("api", []manifest.Fault{duplicate})
		want("Node n1 Warning FailedValidation b.yaml:1: Pod default/web: twice")
		r.Update("folder", nil)
		want(heal)
		r.Update("folder", []manifest.Fault{fault})
		want(warn)

		// While the API is away nothing is lost, and what healed is not told.
		events.failWith(errors.New("away"))
		r.Update("folder", []manifest.Fault{fault, {File: "c.yaml", Message: "brief"}})
		synctest.Wait()
		r.Update("folder", nil)
		want()
		events.failWith(nil)
		time.Sleep(5 * time.Second)
		want(heal)

		// What it will never take is not tried for ever.
		events.failWith(apierrors.NewForbidden(corev1.Resource("events"), "x", errors.New("no")))
		r.Update("folder", []manifest.Fault{fault})
		synctest.Wait()
		events.failWith(nil)
		time.Sleep(time.Minute)
		want()

		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestCut(t *testing.T) {
	for _, s := range []string{"short", strings.Repeat("é", 600), strings.Repeat("a", 1021) + "éé"} {
		got := cut(s)
		if len(got) > maxMessage || !utf8.ValidString(got) {
			t.Errorf("%d bytes, valid %v", len(got), utf8.ValidString(got))
		}
		if len(s) <= maxMessage && got != s {
			t.Errorf("got %q, want it whole", got)
		}
	}
}
