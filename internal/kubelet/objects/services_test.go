package objects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func (w *world) makeService(namespace, name string) {
	w.t.Helper()
	s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if _, err := w.api.CoreV1().Services(namespace).Create(w.t.Context(), s, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) wantServices(namespace string, want ...string) {
	w.t.Helper()
	list, err := w.store.Services(w.t.Context(), namespace)
	if err != nil {
		w.t.Fatal(err)
	}
	got := make([]string, 0, len(list))
	for _, s := range list {
		got = append(got, s.Namespace+"/"+s.Name)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("services of %s: %v, want %v", namespace, got, want)
	}
}

func TestServices(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.makeService("default", "kubernetes")
		w.makeService("default", "other")
		w.makeService("ns", "db")
		synctest.Wait()
		if n := w.called("list services") + w.called("watch services"); n != 0 {
			t.Errorf("%d requests though nobody asked", n)
		}
		w.wantServices("ns", "default/kubernetes", "ns/db")
		w.wantServices("default", "default/kubernetes", "default/other")
		w.wantServices("empty", "default/kubernetes")
		synctest.Wait() // the fake keeps no history: what is made before the watch is not seen
		w.makeService("ns", "cache")
		if err := w.api.CoreV1().Services("ns").Delete(t.Context(), "db", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.wantServices("ns", "default/kubernetes", "ns/cache")
		if n := w.called("watch services"); n != 1 {
			t.Errorf("%d watches, want 1", n)
		}
	})
}

// While the API server is away, the services that were seen last serve; before
// the first answer, the error says why, and all is well soon after.
func TestServicesServerAway(t *testing.T) {
	away := errors.New("connection refused")
	run(t, func(t *testing.T, w *world) {
		w.fail(away)
		if list, err := w.store.Services(t.Context(), "ns"); err == nil || !strings.Contains(err.Error(), away.Error()) {
			t.Errorf("got %v, %v", list, err)
		}
		w.wantFaults("Services")
		time.Sleep(time.Minute)
		if n := w.called("list services") + w.called("watch services"); n > 30 {
			t.Errorf("%d tries in a minute", n)
		}
		w.fail(nil)
		w.makeService("ns", "db")
		time.Sleep(20 * time.Second)
		w.wantFaults()
		w.wantServices("ns", "ns/db")
		w.fail(away)
		time.Sleep(time.Hour)
		w.wantServices("ns", "ns/db")
	})
}

func TestServicesNeverAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Client: fake.NewClientset(), Log: slog.New(slog.DiscardHandler)}) // never run
		began := time.Now()
		if _, err := s.Services(t.Context(), "ns"); !errors.Is(err, errNoServices) {
			t.Errorf("err = %v", err)
		}
		if took := time.Since(began); took != servicesPatience {
			t.Errorf("gave up after %v", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Services(ctx, "ns"); !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v", err)
		}
	})
}
