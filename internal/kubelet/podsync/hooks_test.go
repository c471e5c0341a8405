package podsync

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri/crifake"
)

// TestHookKinds holds that a hook of a kind that upstream's API takes and its
// kubelet cannot run fails as a hook does.
func TestHookKinds(t *testing.T) {
	w := newWorld(t, nil)
	w.main().Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(80)}}}
	if err := w.sync(); err == nil {
		t.Error("got no error")
	}
	w.wantRunning("")
	w.wantWait("main", "PostStartHookError", "not supported")
	w.wantEvents("Warning FailedPostStartHook PostStartHook failed")
}

func TestHooks(t *testing.T) {
	t.Run("preStop command", func(t *testing.T) {
		w := newWorld(t, nil)
		w.main().Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"bye"}}}}
		w.mustSync()
		if err := w.SyncTerminating(t.Context(), w.pod, w.inspect(), new(int64(5))); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(w.fake.Calls("ExecSync", "StopContainer"), []string{"ExecSync", "StopContainer"}); diff != "" {
			t.Errorf("got -, want +:\n%s", diff)
		}
	})
	t.Run("preStop once", func(t *testing.T) {
		w := newWorld(t, nil)
		w.main().Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"bye"}}}}
		w.mustSync()
		w.fake.Inject(crifake.Fault{Op: "StopContainer", Times: 1, Err: errors.New("stuck")})
		if err := w.SyncTerminating(t.Context(), w.pod, w.inspect(), new(int64(5))); err == nil {
			t.Error("got no error")
		}
		if err := w.SyncTerminating(t.Context(), w.pod, w.inspect(), new(int64(2))); err != nil {
			t.Fatal(err)
		}
		if n := len(w.fake.Calls("ExecSync")); n != 1 {
			t.Errorf("the hook ran %d times, want once", n)
		}
	})
	t.Run("preStop that fails", func(t *testing.T) {
		w := newWorld(t, nil)
		w.fake.SetExec(func(string, []string) crifake.Result { return crifake.Result{Code: 1, Stdout: "secret"} })
		w.main().Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"bye"}}}}
		w.mustSync()
		if err := w.SyncTerminating(t.Context(), w.pod, w.inspect(), new(int64(5))); err != nil {
			t.Fatal(err)
		}
		got := w.eventsSoFar()
		if strings.Contains(strings.Join(got, ""), "secret") {
			t.Errorf("what the hook wrote is in the events: %q", got)
		}
		w.events.Events <- strings.Join(got, "\n")
		if !strings.Contains(strings.Join(w.eventsSoFar(), ""), "Warning FailedPreStopHook PreStopHook failed") {
			t.Errorf("got events %q", got)
		}
	})
	t.Run("preStop command that does not end is no failure", func(t *testing.T) {
		w := newWorld(t, nil)
		w.fake.SetExec(func(string, []string) crifake.Result { return crifake.Result{Takes: time.Hour} })
		w.main().Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"bye"}}}}
		w.mustSync()
		w.eventsSoFar()
		if err := w.SyncTerminating(t.Context(), w.pod, w.inspect(), new(int64(1))); err != nil {
			t.Fatal(err)
		}
		w.wantRunning("")
		w.wantEvents("Normal Killing Stopping container main")
	})
	t.Run("preStop sleep is cut short by the grace period", func(t *testing.T) {
		w := newWorld(t, nil)
		w.main().Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 3600}}}
		w.mustSync()
		if err := w.SyncTerminating(t.Context(), w.pod, w.inspect(), new(int64(1))); err != nil {
			t.Fatal(err)
		}
		w.wantRunning("")
	})
	t.Run("postStart that fails", func(t *testing.T) {
		w := newWorld(t, nil)
		w.fake.SetExec(func(string, []string) crifake.Result { return crifake.Result{Code: 1} })
		w.main().Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"hi"}}}}
		if err := w.sync(); err == nil {
			t.Error("got no error")
		}
		w.wantRunning("")
		w.wantWait("main", "PostStartHookError", `command ["hi"] exited with 1`)
		w.wantEvents("Warning FailedPostStartHook PostStartHook failed", "Normal Killing FailedPostStartHook")
	})
	t.Run("postStart over HTTP", func(t *testing.T) {
		asked := make(chan *http.Request, 1)
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r }))
		defer server.Close()
		u, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		port, err := strconv.ParseInt(u.Port(), 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, nil)
		w.main().Ports = []v1.ContainerPort{{Name: "hook", ContainerPort: int32(port)}}
		w.main().Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
			Host: u.Hostname(), Port: intstr.FromString("hook"), Path: "up?x=1", Scheme: v1.URISchemeHTTPS,
			HTTPHeaders: []v1.HTTPHeader{{Name: "Host", Value: "me"}, {Name: "Authorization", Value: "s"}, {Name: "X", Value: "y"}},
		}}}
		w.mustSync() // asked in HTTPS, answered in HTTP, asked again
		r := <-asked
		if r.URL.String() != "/up?x=1" || r.Host != "me" || r.Header.Get("X") != "y" || r.Header.Get("Authorization") != "" {
			t.Errorf("got %s for %s with %v", r.URL, r.Host, r.Header)
		}
	})
}
