package objects

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpointfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
)

// kept is a memory with ConfigMap ns/a, a token and a service.
type kept struct{ damaged error }

func (k kept) Object(ref podvolumes.Ref) (runtime.Object, error) {
	if k.damaged != nil || ref.Name != "a" {
		return nil, cmpOr(k.damaged, fs.ErrNotExist)
	}
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Data: map[string]string{"k": "kept"}}, nil
}

func (k kept) Token(_, account string, _ *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	if account != "default" {
		return nil, fs.ErrNotExist
	}
	return &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "kept"}}, nil
}

func (k kept) Services(namespace string) ([]*v1.Service, error) {
	if namespace != "ns" {
		return nil, fs.ErrNotExist
	}
	return []*v1.Service{{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}}, nil
}

func cmpOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// remembering runs body with a Store that has a memory, in a bubble. Its API
// answers with down until that is nil.
func remembering(t *testing.T, down error, memory memory, body func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, api: fake.NewClientset(), calls: map[string]int{}, down: down}
		w.api.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			err := w.count(action)
			if err == nil && action.GetSubresource() == "token" {
				return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "live"}}, nil
			}
			return err != nil, nil, err
		})
		w.store = New(Config{Client: w.api, Log: slog.New(slog.DiscardHandler), Memory: memory})
		w.store.Subscribe(func(uid types.UID) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.changed = append(w.changed, uid)
		})
		stop := runtest.Start(t, w.store.Run)
		body(t, w)
		stop()
	})
}

// hanging is a network that swallows everything.
type hanging struct{}

func (hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func values(t *testing.T, s *Store) (configMap, token string, services int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cm, err := s.GetConfigMap(ctx, "ns", "a")
	if err != nil {
		configMap = err.Error()
	} else {
		configMap = cm.Data["k"]
	}
	request, err := s.Token(ctx, "ns", "default", &authenticationv1.TokenRequest{})
	if err != nil {
		token = err.Error()
	} else {
		token = request.Status.Token
	}
	list, _ := s.Services(ctx, "ns")
	return configMap, token, len(list)
}

// TestMemory holds that what was kept serves while the API server does not
// answer, and that an answer ends that.
func TestMemory(t *testing.T) {
	for name, down := range map[string]error{
		"refused": errors.New("connection refused"), "unavailable": apierrors.NewServiceUnavailable("starting"), "broken": apierrors.NewInternalError(errors.New("etcd")),
	} {
		t.Run(name, func(t *testing.T) {
			remembering(t, down, kept{}, func(t *testing.T, w *world) {
				w.store.Hold(podOf("p", "a", "b"))
				if cm, token, services := values(t, w.store); cm != "kept" || token != "kept" || services != 1 {
					t.Errorf("got %s, %s, %d services", cm, token, services)
				}
				if _, err := w.store.GetConfigMap(t.Context(), "ns", "b"); err == nil || apierrors.IsNotFound(err) {
					t.Errorf("an object that was not kept: %v", err)
				}
				if seen := w.store.Seen(); len(seen) != 0 {
					t.Errorf("what was kept counts as seen: %v", seen)
				}
				w.news()
				w.fail(nil)
				w.put("a", "2", false)
				time.Sleep(time.Minute)
				if cm, token, services := values(t, w.store); cm != "2" || token != "live" || services != 0 {
					t.Errorf("the API is back: got %s, %s, %d services", cm, token, services)
				}
				if n := len(w.news()); n == 0 {
					t.Error("nobody was told that the object is another now")
				}
				if seen := w.store.Seen(); seen[podvolumes.Ref{Kind: podvolumes.RefConfigMap, Namespace: "ns", Name: "a"}] == nil || len(seen) != 2 {
					t.Errorf("seen: %v", seen)
				}
				if _, _, ok := w.store.SeenServices("ns"); !ok {
					t.Error("services are not seen")
				}
				if got := w.store.Tokens()[checkpointfile.TokenKey("ns", "default", &authenticationv1.TokenRequest{})]; got == nil || got.Status.Token != "live" {
					t.Errorf("tokens: %v", w.store.Tokens())
				}
				w.fail(down) // and away again: what was last seen counts
				time.Sleep(time.Minute)
				if cm, _, _ := values(t, w.store); cm != "2" {
					t.Errorf("away again: %s", cm)
				}
			})
		})
	}
}

// TestMemoryNeverOverrules holds that an answer counts, also a bad one.
func TestMemoryNeverOverrules(t *testing.T) {
	t.Run("not there", func(t *testing.T) {
		remembering(t, nil, kept{}, func(t *testing.T, w *world) {
			w.store.Hold(podOf("p", "a"))
			if _, err := w.store.GetConfigMap(t.Context(), "ns", "a"); !apierrors.IsNotFound(err) {
				t.Errorf("got %v, want not found", err)
			}
		})
	})
	resource := schema.GroupResource{Resource: "x"}
	for name, down := range map[string]error{
		"forbidden": apierrors.NewForbidden(resource, "x", nil), "not found": apierrors.NewNotFound(resource, "x"), "unauthorized": apierrors.NewUnauthorized("x"),
	} {
		t.Run(name, func(t *testing.T) {
			remembering(t, down, kept{}, func(t *testing.T, w *world) {
				w.store.Hold(podOf("p", "a"))
				if cm, token, services := values(t, w.store); cm == "kept" || token == "kept" || services != 0 {
					t.Errorf("got %s, %s, %d services", cm, token, services)
				}
			})
		})
	}
}

// TestMemoryIsQuick holds that nobody waits long for a server that says nothing.
func TestMemoryIsQuick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://192.0.2.1", Transport: hanging{}})
		if err != nil {
			t.Fatal(err)
		}
		s := New(Config{Client: client, Log: slog.New(slog.DiscardHandler), Memory: kept{}})
		runtest.Start(t, s.Run)
		s.Hold(podOf("p", "a"))
		began := time.Now()
		if cm, token, services := values(t, s); cm != "kept" || token != "kept" || services != 1 {
			t.Errorf("got %s, %s, %d services", cm, token, services)
		}
		if took := time.Since(began); took > 6*time.Second { // three times a little
			t.Errorf("took %v", took)
		}
		s.Release("p")
		if cm, _, _ := values(t, s); cm != "kept" {
			t.Errorf("of what nobody holds: %s", cm)
		}
	})
}

// TestMemoryOfWhatNobodyHolds holds that it serves there too: a PersistentVolume is
// asked for before it is known which pods hold it.
func TestMemoryOfWhatNobodyHolds(t *testing.T) {
	remembering(t, errors.New("connection refused"), kept{}, func(t *testing.T, w *world) {
		if cm, err := w.store.GetConfigMap(t.Context(), "ns", "a"); err != nil || cm.Data["k"] != "kept" {
			t.Errorf("got %v, %v", cm, err)
		}
		if _, err := w.store.GetConfigMap(t.Context(), "ns", "b"); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("what was never kept: %v", err)
		}
	})
	remembering(t, nil, kept{}, func(t *testing.T, w *world) {
		if _, err := w.store.GetConfigMap(t.Context(), "ns", "a"); !apierrors.IsNotFound(err) {
			t.Errorf("got %v, want not found", err)
		}
	})
}

// TestMemoryIsDamaged holds that the error says both.
func TestMemoryIsDamaged(t *testing.T) {
	down := errors.New("connection refused")
	remembering(t, down, kept{checkpointfile.ErrDamaged}, func(t *testing.T, w *world) {
		w.store.Hold(podOf("p", "a"))
		_, err := w.store.GetConfigMap(t.Context(), "ns", "a")
		if !errors.Is(err, down) || !errors.Is(err, checkpointfile.ErrDamaged) {
			t.Errorf("got %v", err)
		}
	})
}
