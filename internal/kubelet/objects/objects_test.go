package objects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a Store with an API server that can be made to fail.
type world struct {
	t     *testing.T
	api   *fake.Clientset
	store *Store

	mu      sync.Mutex
	down    error                 // what every request answers, if not nil
	once    func() runtime.Object // answers the next read, if not nil
	calls   map[string]int
	changed []types.UID
}

// run runs body with a running Store in a bubble of fake time.
func run(t *testing.T, body func(t *testing.T, w *world)) { runWith(t, Config{}, body) }

// runWith is run with a Store that is configured so, beside client and log.
func runWith(t *testing.T, cfg Config, body func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, api: fake.NewClientset(), calls: map[string]int{}}
		w.api.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			err := w.count(action)
			if answer := w.takeOnce(action.GetVerb()); answer != nil {
				return true, answer(), err
			}
			return err != nil, nil, err
		})
		w.api.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
			err := w.count(action)
			return err != nil, nil, err
		})
		cfg.Client, cfg.Log = w.api, slog.New(slog.DiscardHandler)
		w.store = New(cfg)
		w.store.Subscribe(func(uid types.UID) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.changed = append(w.changed, uid)
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.store.Run(ctx) }()
		body(t, w)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (w *world) count(action clienttesting.Action) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[action.GetVerb()+" "+action.GetResource().Resource]++
	return w.down
}

// answerOnce has the next read answered by answer, which may take its time.
func (w *world) answerOnce(answer func() runtime.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.once = answer
}

func (w *world) takeOnce(verb string) func() runtime.Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	if verb != "get" {
		return nil
	}
	answer := w.once
	w.once = nil
	return answer
}

func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = err
}

func (w *world) called(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[what]
}

// news returns who was told of a change since the last call.
func (w *world) news() []types.UID {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	news := w.changed
	w.changed = nil
	return news
}

func (w *world) wantNews(want ...types.UID) {
	w.t.Helper()
	if got := w.news(); fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("told %v, want %v", got, want)
	}
}

// wantFaults compares what the faults are about.
func (w *world) wantFaults(want ...string) {
	w.t.Helper()
	synctest.Wait()
	var got []string
	for _, f := range w.store.Faults() {
		got = append(got, f.Object)
		if f.Message == "" || f.Since.IsZero() {
			w.t.Errorf("fault %+v", f)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("faults %v, want %v", got, want)
	}
}

func (w *world) put(name, value string, immutable bool) {
	w.t.Helper()
	cm := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: value}, Data: map[string]string{"k": value}}
	if immutable {
		cm.Immutable = &immutable
	}
	client := w.api.CoreV1().ConfigMaps("ns")
	_, err := client.Update(w.t.Context(), cm, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.Create(w.t.Context(), cm, metav1.CreateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) wantValue(name, want string) {
	w.t.Helper()
	cm, err := w.store.GetConfigMap(w.t.Context(), "ns", name)
	switch {
	case want == "" && !apierrors.IsNotFound(err):
		w.t.Errorf("%s: %v, %v, want not found", name, cm, err)
	case want != "" && (err != nil || cm.Data["k"] != want):
		w.t.Errorf("%s: %v, %v, want %s", name, cm, err, want)
	}
}

func podOf(uid types.UID, configMaps ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(uid), UID: uid}}
	for _, name := range configMaps {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}}}})
	}
	return pod
}

func TestWatch(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.put("other", "x", false)
		w.store.Hold(podOf("p1", "cm"))
		w.wantValue("cm", "")
		w.wantNews("p1") // that it is not there
		w.put("cm", "1", false)
		w.wantNews("p1")
		w.wantValue("cm", "1")
		w.put("cm", "2", false)
		w.wantNews("p1")
		w.wantValue("cm", "2")
		w.put("other", "y", false)
		w.wantNews()
		if err := w.api.CoreV1().ConfigMaps("ns").Delete(t.Context(), "cm", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.wantNews("p1")
		w.wantValue("cm", "")
		if n := w.called("get configmaps"); n != 0 {
			t.Errorf("%d reads of a held object", n)
		}
	})
}

func TestRuntimeClasses(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		pod := podOf("p1")
		pod.Spec.RuntimeClassName = new("safe")
		w.store.Hold(pod)
		w.wantNews("p1") // that there is none
		w.store.HoldRuntimeClasses("s", []string{"safe", "fast"})
		w.wantNews("s") // of the one that was not asked for before
		want := `runtimeclass.node.k8s.io "safe" not found`
		if _, err := w.store.GetRuntimeClass(t.Context(), "safe"); !apierrors.IsNotFound(err) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "safe"}, Handler: "h"}
		if _, err := w.api.NodeV1().RuntimeClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if news := w.news(); len(news) != 2 {
			t.Errorf("told %v, want both holders", news)
		}
		if got, err := w.store.GetRuntimeClass(t.Context(), "safe"); err != nil || got.Handler != "h" {
			t.Errorf("got %+v, %v", got, err)
		}
		w.store.HoldRuntimeClasses("s", nil)
		w.store.Release("p1")
		w.store.mu.Lock()
		defer w.store.mu.Unlock()
		if len(w.store.mu.entries)+len(w.store.mu.held) != 0 {
			t.Errorf("left: %v %v", w.store.mu.entries, w.store.mu.held)
		}
	})
}

// Two pods share one watch; it ends with the last of them.
func TestShared(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.put("cm", "1", false)
		w.store.Hold(podOf("p1", "cm"))
		w.news()
		w.store.Hold(podOf("p2", "cm", "own"))
		w.store.Hold(podOf("p2", "cm", "own"))
		w.news()
		if n := w.called("watch configmaps"); n != 2 {
			t.Errorf("%d watches, want 2", n)
		}
		w.store.Release("p1")
		w.put("cm", "2", false)
		w.wantNews("p2")
		w.store.Hold(podOf("p2", "own")) // refers to it no more
		synctest.Wait()
		w.put("cm", "3", false)
		w.wantNews()
		w.wantValue("cm", "3") // read live
		if n := w.called("get configmaps"); n != 1 {
			t.Errorf("%d reads", n)
		}
		w.store.Release("p2")
		w.store.Release("p2")
		w.store.mu.Lock()
		defer w.store.mu.Unlock()
		if len(w.store.mu.entries)+len(w.store.mu.held) != 0 {
			t.Errorf("left: %v %v", w.store.mu.entries, w.store.mu.held)
		}
	})
}

func TestImmutable(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.put("cm", "1", true)
		w.store.Hold(podOf("p1", "cm"))
		w.wantNews("p1")
		w.wantValue("cm", "1")
		if n := w.called("watch configmaps"); n != 0 {
			t.Errorf("%d watches of what never changes", n)
		}
		time.Sleep(time.Hour)
		if n := w.called("list configmaps"); n != 1 {
			t.Errorf("%d lists", n)
		}
	})
}

// While the API server is away, what was seen last serves; what was not seen
// is an error that says so; all is well again soon after.
func TestServerAway(t *testing.T) {
	away := errors.New("connection refused")
	run(t, func(t *testing.T, w *world) {
		w.put("cm", "1", false)
		w.store.Hold(podOf("p1", "cm"))
		w.wantNews("p1")
		w.fail(away)
		w.wantValue("cm", "1")
		w.store.Hold(podOf("p2", "new"))
		if _, err := w.store.GetConfigMap(t.Context(), "ns", "new"); !errors.Is(err, away) {
			t.Errorf("err = %v", err)
		}
		w.wantFaults("ConfigMap ns/new")
		time.Sleep(time.Minute)
		before := w.called("list configmaps")
		if before > 20 {
			t.Errorf("%d tries in a minute", before)
		}
		w.fail(nil)
		w.put("new", "1", false)
		time.Sleep(10 * time.Second)
		w.wantFaults()
		w.wantNews("p2")
		w.wantValue("new", "1")
	})
}

// A node of a cluster may get claims and not list them.
func TestForbiddenToList(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.api.PrependReactor("list", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, "", errors.New("no"))
		})
		pod := podOf("p1")
		pod.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
		w.store.Hold(pod)
		if _, err := w.store.GetClaim(t.Context(), "ns", "c"); !apierrors.IsNotFound(err) {
			t.Errorf("err = %v", err)
		}
		claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c", ResourceVersion: "1"}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv"}}
		if _, err := w.api.CoreV1().PersistentVolumeClaims("ns").Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.news()
		time.Sleep(6 * time.Second)
		w.wantNews("p1")
		if got, err := w.store.GetClaim(t.Context(), "ns", "c"); err != nil || got.Spec.VolumeName != "pv" {
			t.Errorf("%v, %v", got, err)
		}
		// The volume behind it is held with it, and let go with it.
		if _, err := w.store.GetPersistentVolume(t.Context(), "pv"); !apierrors.IsNotFound(err) {
			t.Errorf("err = %v", err)
		}
		w.news()
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "pv", ResourceVersion: "1"}}
		if _, err := w.api.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.wantNews("p1")
		w.store.Hold(pod) // does not let go of it
		if _, err := w.store.GetPersistentVolume(t.Context(), "pv"); err != nil || w.called("get persistentvolumes") != 0 {
			t.Errorf("%v, %d reads", err, w.called("get persistentvolumes"))
		}
		w.store.Release("p1")
	})
}

// TestPollClaims holds that claims which only may be read are not listed.
func TestPollClaims(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.store.cfg.PollClaims = true
		pod := podOf("p1")
		pod.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
		w.store.Hold(pod)
		claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c", ResourceVersion: "1"}}
		if _, err := w.api.CoreV1().PersistentVolumeClaims("ns").Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		if _, err := w.store.GetClaim(t.Context(), "ns", "c"); err != nil {
			t.Error(err)
		}
		if got := w.called("list persistentvolumeclaims"); got != 0 {
			t.Errorf("listed %d times, want never", got)
		}
		w.store.Release("p1")
	})
}

func TestReadHonoursContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Client: fake.NewClientset(), Log: slog.New(slog.DiscardHandler)}) // never run
		s.Hold(podOf("p", "cm"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.GetConfigMap(ctx, "ns", "cm"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err = %v", err)
		}
		s.Release("p")
	})
}

func TestToken(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		n := 0
		var ahead time.Duration // of the API's clock, when it makes a token
		w.api.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if err := w.count(action); err != nil {
				return true, nil, err
			}
			n++
			request := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest).DeepCopy()
			request.Status.Token = fmt.Sprint("t", n)
			request.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(ahead + time.Duration(*request.Spec.ExpirationSeconds)*time.Second))
			return true, request, nil
		})
		seconds := int64(1000)
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", UID: "p1"}}}
		want := func(token string) {
			t.Helper()
			got, err := w.store.Token(t.Context(), "ns", "sa", request)
			if token == "" && err == nil || token != "" && (err != nil || got.Status.Token != token) {
				t.Errorf("got %v, %v, want %q", got, err, token)
			}
		}
		want("t1")
		time.Sleep(799 * time.Second)
		want("t1")
		time.Sleep(2 * time.Second)
		want("t2") // at four fifths
		w.fail(errors.New("away"))
		time.Sleep(900 * time.Second)
		want("t2") // old, and good
		time.Sleep(101 * time.Second)
		want("") // expired
		w.fail(nil)
		want("t3")
		w.store.Release("p1")
		want("t4")
		w.store.Release("p1")
		ahead = 24 * time.Hour
		want("t5")
		ahead = 0
		want("t6") // the clock was set back: t5 is not valid yet
		want("t6")
	})
}
