// Package podloop tests the parts that run pods together: sources, sync loop,
// workers, statuses and mirrors, on a runtime and an API in memory. Volumes and
// cgroups are left out.
package podloop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/internal/kubelet/cri/crifake"
	"github.com/holdfast-dev/holdfast/internal/kubelet/desired"
	"github.com/holdfast-dev/holdfast/internal/kubelet/mirror"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/pleg"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfolder"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podsource"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podstatus"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podsync"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podworker"
	"github.com/holdfast-dev/holdfast/internal/kubelet/syncloop"
	"github.com/holdfast-dev/holdfast/internal/kubelet/userids"
	"github.com/holdfast-dev/holdfast/internal/rungroup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const node = "n1"

type noVolumes struct{}

func (noVolumes) WaitForMount(context.Context, *v1.Pod) error    { return nil }
func (noVolumes) Paths(types.UID) map[string]string              { return nil }
func (noVolumes) Devices(types.UID) map[string]podvolumes.Device { return nil }
func (noVolumes) ReadOnly(types.UID, string) bool                { return false }
func (noVolumes) Unmount(context.Context, types.UID) error       { return nil }
func (noVolumes) SubPath(context.Context, podvolumes.SubPath) (string, error) {
	return "", errors.New("no volumes")
}

type noCgroups struct{}

func (noCgroups) Ensure(*v1.Pod) (string, error)       { return "", nil }
func (noCgroups) End(context.Context, types.UID) error { return nil }

type noObjects struct{}

func (noObjects) GetConfigMap(_ context.Context, _, name string) (*v1.ConfigMap, error) {
	return nil, fmt.Errorf("no config map %s", name)
}

func (noObjects) GetSecret(_ context.Context, _, name string) (*v1.Secret, error) {
	return nil, fmt.Errorf("no secret %s", name)
}

func (noObjects) GetRuntimeClass(_ context.Context, name string) (*nodev1.RuntimeClass, error) {
	return nil, fmt.Errorf("no runtime class %s", name)
}

// A world is a runtime and an API, and an agent that can be stopped and started.
type world struct {
	t       *testing.T
	runtime *crifake.Fake
	api     *fake.Clientset
	made    int // UIDs that the API gave; guarded by the API's lock
	dir     string
	agent   *agent
	keeps   bool        // the agent keeps the API's pods for a start without it
	away    atomic.Bool // the API does not answer
}

// An agent is one run of the parts.
type agent struct {
	loop    *syncloop.Loop
	workers *podworker.Workers
	cancel  context.CancelFunc
	done    chan error
}

func newWorld(t *testing.T, options ...func(*world)) *world {
	w := &world{t: t, runtime: crifake.Start(t), api: fake.NewClientset(), dir: t.TempDir()}
	w.runtime.AddImage("demo")
	w.api.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.CreateAction).GetObject().(*v1.Pod)
		if p.UID == "" { // as a server does
			w.made++
			p.UID = types.UID(fmt.Sprintf("made-%d", w.made))
		}
		return false, nil, nil
	})
	w.api.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return w.away.Load(), nil, errAway
	})
	w.api.PrependWatchReactor("*", func(clienttesting.Action) (bool, watch.Interface, error) {
		return w.away.Load(), nil, errAway
	})
	for _, option := range options {
		option(w)
	}
	w.runtime.SetEvents(true)
	w.start()
	t.Cleanup(w.stop)
	return w
}

func (w *world) start() {
	log := slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	adapter := cri.New(w.runtime.Conn(), cri.Config{})
	cache := observed.NewCache()
	generator := pleg.New(pleg.Config{Runtime: adapter, Cache: cache, Log: log})
	recorder := &record.FakeRecorder{}

	a := &agent{}
	statuses := podstatus.New(podstatus.Config{
		Log: log, Pods: w.api.CoreV1(), HostIPs: func() []string { return []string{"192.0.2.1"} },
		Terminating:      func(uid types.UID) bool { return a.workers.IsTerminating(uid) },
		CouldHaveRunning: func(uid types.UID) bool { return a.workers.CouldHaveRunning(uid) },
	})
	syncer := podsync.New(podsync.Config{
		Log: log, Recorder: recorder, Runtime: adapter, Volumes: noVolumes{}, Statuses: statuses,
		Cgroups: noCgroups{}, Objects: noObjects{}, Folders: podfolder.New(w.dir, w.dir+"/logs"),
		Users: userids.New(userids.Config{Dir: w.dir}),
		Node: func() *podfiles.Node {
			return &podfiles.Node{Name: node, IPs: []string{"192.0.2.1"}, PodLogs: w.dir + "/logs"}
		},
	})
	a.workers = podworker.New(podworker.Config{
		Log: log, Syncer: syncer, Cache: cache, Recorder: recorder,
		Begins: generator.Quiet,
		// In a bubble a step takes no time, and what is seen in the same moment is
		// not newer.
		Refresh:  func(uid types.UID) { time.AfterFunc(time.Millisecond, func() { generator.Poke(uid) }) },
		RetryAt:  func(p *v1.Pod) (time.Time, bool) { return syncer.RetryAt(p.UID) },
		Finished: statuses.SetTerminated,
	})
	mirrors := mirror.New(mirror.Config{
		Log: log, Pods: w.api.CoreV1(), Node: node,
		NodeUID: func(context.Context) (types.UID, error) { return "node-uid", nil },
	})
	published := func() {}
	a.loop = syncloop.New(syncloop.Config{
		Published: func() { published() },
		Log:       log, Desired: desired.New("file", "api"), Workers: a.workers, Statuses: statuses, Store: statuses,
		Runtime: generator, Mirrors: mirrors, Recorder: recorder, Events: generator.Events(), Ended: a.workers.Ended(),
	})
	var parts rungroup.Group
	source := podsource.APIConfig{Node: node, Client: w.api, Deliver: a.loop.Deliver, Log: log}
	if w.keeps {
		keeper := w.keeper(a, cache, generator)
		source.Restore, published = keeper.Restore, keeper.Poke
		parts.Add("checkpoint", keeper.Run)
	}
	api := podsource.NewAPI(source)

	parts.Add("statuses", statuses.Run)
	parts.Add("mirrors", mirrors.Run)
	parts.Add("pleg", generator.Run)
	parts.Add("workers", a.workers.Run)
	parts.Add("loop", a.loop.Run)
	parts.Add("api", api.Run)
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel, a.done = cancel, make(chan error, 1)
	go func() { a.done <- parts.Run(ctx) }()
	w.agent = a
}

func (w *world) stop() {
	w.agent.cancel()
	if err := <-w.agent.done; err != nil {
		w.t.Errorf("agent: %v", err)
	}
}

func pod(uid, name string, options ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)},
		Spec: v1.PodSpec{
			NodeName: node, RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: new(int64(5)),
			Containers: []v1.Container{{
				Name: "c", Image: "demo", ImagePullPolicy: v1.PullIfNotPresent,
				TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
			}},
		},
	}
	for _, option := range options {
		option(p)
	}
	return p
}

func static(p *v1.Pod) {
	p.Annotations = map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": string(p.UID)}
}

func never(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever }

// settle gives the agent time for what it does at once, and for what it does
// every few seconds.
func settle() { time.Sleep(3 * time.Second); synctest.Wait() }

func (w *world) get(name string) *v1.Pod {
	w.t.Helper()
	p, err := w.api.CoreV1().Pods("default").Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) exists(name string) bool {
	_, err := w.api.CoreV1().Pods("default").Get(w.t.Context(), name, metav1.GetOptions{})
	return err == nil
}

func (w *world) create(p *v1.Pod) {
	w.t.Helper()
	if _, err := w.api.CoreV1().Pods("default").Create(w.t.Context(), p, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// delete marks a pod as a server does that waits for the node.
func (w *world) delete(name string) {
	w.t.Helper()
	p := w.get(name)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, new(int64(5))
	if _, err := w.api.CoreV1().Pods("default").Update(w.t.Context(), p, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) files(pods ...*v1.Pod) {
	w.agent.loop.Deliver(w.t.Context(), desired.Delivery{Source: "file", Pods: pods})
}

// state is what the API shows of a pod: phase, readiness, restarts, container.
func (w *world) state(name string) string {
	w.t.Helper()
	p := w.get(name)
	words := []string{string(p.Status.Phase)}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			words = append(words, "ready")
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		words = append(words, fmt.Sprintf("restarts=%d", c.RestartCount))
	}
	return strings.Join(words, " ")
}

func (w *world) container(name string) string {
	w.t.Helper()
	all := w.runtime.Containers("default", name, "c")
	if len(all) == 0 {
		w.t.Fatalf("no container of %s", name)
	}
	return all[0]
}

// running is how many containers of a pod run.
func (w *world) running(name string) int {
	w.t.Helper()
	pods, err := cri.New(w.runtime.Conn(), cri.Config{}).Pods(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for _, p := range pods {
		for _, c := range p.Containers {
			if p.Name == name && c.State == observed.Running {
				n++
			}
		}
	}
	return n
}

func (w *world) nothingLeft(names ...string) {
	w.t.Helper()
	for _, name := range names {
		if c, s := w.runtime.Containers("default", name, "c"), w.runtime.Sandboxes("default", name); len(c)+len(s) > 0 {
			w.t.Errorf("of %s there is still %v %v", name, c, s)
		}
		if w.exists(name) {
			w.t.Errorf("%s is still in the API: %s", name, w.state(name))
		}
	}
}

func TestAPIPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.files()
		w.create(pod("a", "web"))
		settle()
		if got := w.state("web"); got != "Running ready restarts=0" {
			t.Errorf("web = %s", got)
		}
		w.delete("web")
		settle()
		w.nothingLeft("web")
		if left := len(w.agent.workers.Snapshot()); left != 0 {
			t.Errorf("%d workers are left", left)
		}
	})
}

func TestJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.files()
		w.runtime.SetProgram("c", crifake.Program{Ends: &crifake.Exit{Code: 3}})
		w.create(pod("a", "bad", never))
		settle()
		w.runtime.SetProgram("c", crifake.Program{Ends: &crifake.Exit{}})
		w.create(pod("b", "good", never))
		settle()
		if got := w.state("bad") + ", " + w.state("good"); got != "Failed restarts=0, Succeeded restarts=0" {
			t.Errorf("jobs = %s", got)
		}
		if code := w.get("bad").Status.ContainerStatuses[0].State.Terminated.ExitCode; code != 3 {
			t.Errorf("exit code = %d", code)
		}
		w.stop()
		w.start()
		w.files()
		settle()
		w.delete("bad")
		w.delete("good")
		settle()
		w.nothingLeft("bad", "good")
	})
}

func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.files()
		w.create(pod("a", "web"))
		settle()
		if err := w.runtime.Exit(w.container("web"), 1); err != nil {
			t.Fatal(err)
		}
		settle()
		time.Sleep(15 * time.Second)
		settle()
		if got := w.state("web"); got != "Running ready restarts=1" {
			t.Errorf("web = %s", got)
		}
	})
}

func TestAgentRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		web := pod("s", "web", static)
		w.files(web)
		w.create(pod("a", "db"))
		settle()
		before := w.container("web") + w.container("db")
		w.stop()
		w.start()
		settle() // no set of files: nothing may go
		w.files(web)
		settle()
		if after := w.container("web") + w.container("db"); after != before {
			t.Errorf("other containers run: %s, before %s", after, before)
		}
		if got := w.state("web") + ", " + w.state("db"); got != "Running ready restarts=0, Running ready restarts=0" {
			t.Errorf("pods = %s", got)
		}
	})
}

func TestStaticPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		web := pod("s1", "web", static)
		w.files(web)
		settle()
		if got := w.state("web"); got != "Running ready restarts=0" {
			t.Errorf("mirror = %s", got)
		}
		first := w.container("web")

		// Its mirror is deleted: it comes back, and the pod does not notice.
		if err := w.api.CoreV1().Pods("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		settle()
		if got := w.state("web"); got != "Running ready restarts=0" || w.container("web") != first {
			t.Errorf("after its mirror was deleted: %s", got)
		}

		// It is edited: the old one ends before the new one starts.
		w.files(pod("s2", "web", static))
		settle()
		if w.container("web") == first || w.get("web").Annotations["kubernetes.io/config.mirror"] != "s2" {
			t.Errorf("after an edit: %s, mirror of %s", w.container("web"), w.get("web").Annotations["kubernetes.io/config.mirror"])
		}
		if n := len(w.runtime.Containers("default", "web", "c")); n != 1 {
			t.Errorf("%d containers after an edit", n)
		}

		// It is removed and put back at once.
		second := w.container("web")
		w.files()
		w.files(pod("s2", "web", static))
		settle()
		if w.container("web") == second || w.state("web") != "Running ready restarts=0" {
			t.Errorf("put back: %s", w.state("web"))
		}
		w.files()
		settle()
		w.nothingLeft("web")
	})
}

func TestEditedWhileTheAgentWasDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.runtime.SetProgram("c", crifake.Program{IgnoresTerm: true})
		w.files(pod("s1", "web", static))
		settle()
		old := w.container("web")
		w.stop()
		w.start()
		w.files(pod("s2", "web", static))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := w.container("web"); got != old {
			t.Errorf("the new version %s runs beside the old one", got)
		}
		time.Sleep(40 * time.Second)
		synctest.Wait()
		if all := w.runtime.Containers("default", "web", "c"); len(all) != 1 || all[0] == old {
			t.Errorf("containers: %v; want only the new version's", all)
		}
	})
}

// TestPutBackWithinGrace removes a manifest and puts it back while the pod is
// still ending: the same UID starts again, once, when the old instance is gone.
func TestPutBackWithinGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.runtime.SetProgram("c", crifake.Program{IgnoresTerm: true})
		web := pod("s1", "web", static)
		w.files(web)
		settle()
		old := w.container("web")
		w.files()
		time.Sleep(time.Second)
		w.files(web)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if all := w.runtime.Containers("default", "web", "c"); len(all) != 1 || all[0] != old {
			t.Errorf("within the grace period: containers %v, want only %s", all, old)
		}
		time.Sleep(40 * time.Second)
		synctest.Wait()
		if all := w.runtime.Containers("default", "web", "c"); len(all) != 1 || all[0] == old || w.running("web") != 1 {
			t.Errorf("afterwards: containers %v, of which %d run; want one that is not %s", all, w.running("web"), old)
		}
		if got := w.state("web"); got != "Running ready restarts=0" {
			t.Errorf("web = %s", got)
		}
	})
}

func TestManyPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.files()
		var names []string
		for i := range 30 {
			names = append(names, fmt.Sprintf("p%d", i))
			w.create(pod(fmt.Sprintf("u%d", i), names[i]))
		}
		settle()
		for _, name := range names {
			if got := w.state(name); got != "Running ready restarts=0" {
				t.Errorf("%s = %s", name, got)
			}
		}
		for _, name := range names {
			w.delete(name)
		}
		settle()
		w.nothingLeft(names...)
	})
}

// TestAgentDiesAnywhere stops the agent after each number of milliseconds while
// it starts, and then while it ends, a pod of either kind, and starts it again.
// Calls of the runtime take a while, so that it dies in each of them.
func TestAgentDiesAnywhere(t *testing.T) {
	for ms := 0; ms < 200; ms += 9 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			for _, op := range []string{"RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox", "RemovePodSandbox", "RemoveContainer"} {
				w.runtime.Delay(op, 20*time.Millisecond)
			}
			dies := func() {
				time.Sleep(time.Duration(ms) * time.Millisecond)
				w.stop()
				w.start()
			}
			web := pod("s", "web", static)
			w.files(web)
			w.create(pod("a", "db"))
			dies()
			w.files(web)
			settle()
			for _, name := range []string{"web", "db"} {
				running := w.running(name)
				if got := w.state(name); running != 1 || !strings.HasPrefix(got, "Running ready") {
					t.Errorf("died after %d ms: of %s there run %d containers; its state is %s", ms, name, running, got)
				}
			}

			w.files()
			w.delete("db")
			dies()
			w.files()
			time.Sleep(10 * time.Second)
			settle()
			w.nothingLeft("web", "db")
		})
	}
}

func TestRuntimeAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.files(pod("s", "web", static))
		w.create(pod("a", "db"))
		settle()
		before := w.container("web") + w.container("db")
		w.runtime.Stop()
		w.create(pod("b", "late"))
		time.Sleep(time.Minute)
		if got := w.state("web") + ", " + w.state("db"); got != "Running ready restarts=0, Running ready restarts=0" {
			t.Errorf("while the runtime is away: %s", got)
		}
		w.runtime.Restart()
		time.Sleep(30 * time.Second)
		settle()
		if after := w.container("web") + w.container("db"); after != before {
			t.Errorf("other containers run: %s, before %s", after, before)
		}
		if got := w.state("late"); got != "Running ready restarts=0" {
			t.Errorf("made while the runtime was away: %s", got)
		}
	})
}
