package joined_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet"
	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpoint"
	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpointfile"
	"github.com/holdfast-dev/holdfast/test/controlplane"
	"github.com/holdfast-dev/holdfast/test/joined"
)

// startsWithin is how long a node may take, from the start of its agent, to have
// its pods ready without the API server.
const startsWithin = 3 * time.Minute

// offline is a node whose control plane goes away.
type offline struct {
	*joined.Node
	t *testing.T
}

// TestOffline reboots a node while its API server is away.
func TestOffline(t *testing.T) {
	n := &offline{joined.Start(t, joined.Config{Options: joined.Options{Checkpoint: &kubelet.Checkpoint{KeyFile: keyFile(t, 1)}}}), t}
	n.make("settings", "1")
	app, gone, ends := n.Run(pod("app")), n.Run(pod("gone")), n.Run(pod("ends"))
	n.awaitKept(app, gone, ends)
	t.Run("it starts its pods, and takes up what changed meanwhile", func(t *testing.T) { n.in(t).reconnects(app, gone, ends) })
	t.Run("an API server that hangs is as good as away", func(t *testing.T) { n.in(t).hangs() })
	t.Run("a pod that has ended does not run again", func(t *testing.T) { n.in(t).ended() })
	t.Run("a damaged file costs only its pod", func(t *testing.T) { n.in(t).damaged(app) })
	t.Run("a checkpoint that is too old starts nothing", func(t *testing.T) { n.in(t).tooOld(app) })
	t.Run("with another key nothing starts until the API is back", func(t *testing.T) { n.in(t).anotherKey(app) })
}

func (n *offline) in(t *testing.T) *offline { return &offline{n.In(t), t} }

func keyFile(t *testing.T, b byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32))), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// pod returns a pod that cannot start without a ConfigMap, a Secret, the token of
// its service account, the cluster's certificate, the list of services and the Node.
func pod(name string) *v1.Pod {
	p := joined.Pod(name)
	c := &p.Spec.Containers[0]
	c.EnvFrom = []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}}}
	c.VolumeMounts = []v1.VolumeMount{{Name: "settings", MountPath: "/settings"}, {Name: "secret", MountPath: "/secret"}}
	p.Spec.Volumes = []v1.Volume{
		{Name: "settings", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}}},
		{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "settings"}}},
		{Name: "node", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{{
			Path: "memory", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: c.Name, Resource: "limits.memory"},
		}}}}},
	}
	return p
}

// bound binds a pod to the node without the scheduler. That backs off from an API
// server that was away, by up to a minute and the longer the more often: its pause
// only becomes short again after two minutes without an outage.
func (n *offline) bound(p *v1.Pod) *v1.Pod {
	p.Spec.NodeName = n.Name
	return p
}

// make makes or changes the objects that pods use.
func (n *offline) make(name, value string) {
	n.t.Helper()
	core, ctx := n.Admin.CoreV1(), n.t.Context()
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}
	cm := &v1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"value": value}}
	secret := &v1.Secret{ObjectMeta: meta, StringData: map[string]string{"value": value}}
	if _, err := core.ConfigMaps(meta.Namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
		_, err := core.ConfigMaps(meta.Namespace).Create(ctx, cm, metav1.CreateOptions{})
		n.must(err)
		_, err = core.Secrets(meta.Namespace).Create(ctx, secret, metav1.CreateOptions{})
		n.must(err)
		return
	}
	_, err := core.ConfigMaps(meta.Namespace).Update(ctx, cm, metav1.UpdateOptions{})
	n.must(err)
}

func (n *offline) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *offline) dir() string { return n.Instance.Path("checkpoint") }

// awaitKept waits until the pods, and a token of each, are on the disk.
func (n *offline) awaitKept(pods ...*v1.Pod) {
	n.t.Helper()
	folder := checkpoint.New(checkpoint.Config{Dir: n.dir(), KeyFile: n.Options.Checkpoint.KeyFile})
	n.Eventually("the pods are kept", func(context.Context) (bool, error) {
		files, err := folder.Files()
		if err != nil {
			return false, err
		}
		kept := map[types.UID]int{}
		for _, f := range files {
			if f.Err == nil {
				kept[types.UID(f.Key.Owner())]++
			}
		}
		for _, p := range pods {
			if kept[p.UID] < 2 {
				return false, fmt.Errorf("kept of pod %s: %d", p.Name, kept[p.UID])
			}
		}
		return true, nil
	})
}

// awaitKeptEnd waits until it is on the disk that a pod has ended. Its token need
// not be: it may have ended before anybody looked.
func (n *offline) awaitKeptEnd(pod *v1.Pod) {
	n.t.Helper()
	folder := checkpoint.New(checkpoint.Config{Dir: n.dir(), KeyFile: n.Options.Checkpoint.KeyFile})
	n.Eventually("the pod's end is kept", func(context.Context) (bool, error) {
		data, err := folder.Read(checkpointfile.PodKey(pod.Namespace, pod.Name, string(pod.UID)))
		if err != nil {
			return false, err
		}
		var kept v1.Pod
		if err := json.Unmarshal(data, &kept); err != nil {
			return false, err
		}
		return kept.Status.Phase == v1.PodSucceeded, fmt.Errorf("kept as %s", kept.Status.Phase)
	})
}

// awaitReport waits until the agent says what ok wants, no longer than a start may
// take.
func (n *offline) awaitReport(what string, ok func(joined.Report) bool) joined.Report {
	n.t.Helper()
	deadline := time.Now().Add(startsWithin)
	for {
		r, err := n.Report(n.t.Context())
		if err == nil && ok(r) {
			return r
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("%s: not after %v: %v, faults %v, pods %v", what, startsWithin, err, r.Faults, show(r.Pods))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// show writes pods as `app ready`.
func show(pods []*v1.Pod) []string {
	var all []string
	for _, p := range pods {
		ready := slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue })
		if ready {
			all = append(all, p.Name+" ready")
		} else {
			all = append(all, p.Name)
		}
	}
	slices.Sort(all)
	return all
}

func readies(pods ...string) func(joined.Report) bool {
	return func(r joined.Report) bool { return slices.Equal(show(r.Pods), pods) }
}

// says reports whether a fault's object and message hold all of these.
func says(r joined.Report, parts ...string) bool {
	for _, f := range r.Faults {
		line := f.Object + ": " + f.Message
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			return true
		}
	}
	return false
}

// file reads a file of a pod's volume.
func (n *offline) file(p *v1.Pod, kind, volume, name string) string {
	n.t.Helper()
	data, err := os.ReadFile(filepath.Join(n.Instance.Path("kubelet"), "pods", string(p.UID), "volumes", "kubernetes.io~"+kind, volume, name))
	n.must(err)
	return string(data)
}

// bootWithoutAPI is a power cut, in a place without an uplink.
func (n *offline) bootWithoutAPI() {
	n.t.Helper()
	n.Reboot()
	n.Stop(controlplane.APIServer)
	n.StartAgent()
}

func (n *offline) reconnects(app, gone, ends *v1.Pod) {
	memory := n.file(app, "downward-api", "node", "memory") // the node's allocatable
	n.Reboot()
	n.make("settings", "2") // while the node is off
	now := int64(0)
	n.must(n.Admin.CoreV1().Pods(gone.Namespace).Delete(n.t.Context(), gone.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	n.Delete(ends.Name)
	n.Stop(controlplane.APIServer)
	n.StartAgent()
	r := n.awaitReport("the pods are ready", readies("app ready", "ends ready", "gone ready"))
	if !says(r, "Pods: 3 of them run from the checkpoint of "+time.Now().UTC().Format("2006-01-")) {
		n.t.Errorf("faults: %v", r.Faults)
	}
	if r.Synced {
		n.t.Error("the agent says that it has the pods of every source")
	}
	if got := n.file(app, "configmap", "settings", "value") + n.file(app, "secret", "secret", "value"); got != "11" {
		n.t.Errorf("content of the volumes: %q", got)
	}
	if got := n.file(app, "downward-api", "node", "memory"); got != memory || memory == "0" {
		n.t.Errorf("the node's memory: %q, before the reboot %q", got, memory)
	}
	token := ""
	for _, v := range app.Spec.Volumes {
		if v.Projected != nil {
			token = n.file(app, "projected", v.Name, "token")
			if ca := n.file(app, "projected", v.Name, "ca.crt"); !strings.Contains(ca, "BEGIN CERTIFICATE") {
				n.t.Errorf("certificate of the cluster: %q", ca)
			}
		}
	}
	if strings.Count(token, ".") != 2 {
		n.t.Errorf("token: %q", token)
	}
	before := n.Running()

	n.Resume(controlplane.APIServer)
	n.AwaitSynced()
	n.AwaitGone(ends.Name, ends.UID)
	n.Eventually("the pods that were deleted meanwhile go", func(context.Context) (bool, error) {
		running := n.Running()
		return len(running) == 1, fmt.Errorf("running: %v", running)
	})
	n.AwaitPod("app", "is ready again", func(p *v1.Pod) error {
		if p.UID != app.UID || len(p.Status.ContainerStatuses) != 1 || !strings.HasSuffix(p.Status.ContainerStatuses[0].ContainerID, before["default/app/main"]) || !p.Status.ContainerStatuses[0].Ready {
			return fmt.Errorf("UID %s, containers %v", p.UID, p.Status.ContainerStatuses)
		}
		return nil
	})
	n.Eventually("the changed ConfigMap is in the volume", func(context.Context) (bool, error) {
		got := n.file(app, "configmap", "settings", "value")
		return got == "2", fmt.Errorf("it holds %q", got)
	})
	maps.DeleteFunc(before, func(key, _ string) bool { return key != "default/app/main" })
	if after := n.Running(); !maps.Equal(before, after) {
		n.t.Errorf("containers %v, before the API was back %v", after, before)
	}
	if r, err := n.Report(n.t.Context()); err != nil || says(r, "checkpoint") {
		n.t.Errorf("with the API: %v, faults %v", err, r.Faults)
	}
	n.AwaitNoLeaks(app.UID)
	n.awaitForgotten(gone, ends)
}

// awaitForgotten waits until nothing is kept of pods.
func (n *offline) awaitForgotten(pods ...*v1.Pod) {
	n.t.Helper()
	n.Eventually("nothing of the pods is kept", func(context.Context) (bool, error) {
		files, err := checkpoint.New(checkpoint.Config{Dir: n.dir(), KeyFile: n.Options.Checkpoint.KeyFile}).Files()
		for _, f := range files {
			if slices.ContainsFunc(pods, func(p *v1.Pod) bool { return f.Key.Owner() == string(p.UID) }) {
				err = fmt.Errorf("%s is kept", f.Key)
			}
		}
		return err == nil, err
	})
}

func (n *offline) hangs() {
	n.Reboot()
	n.Freeze(controlplane.APIServer)
	n.StartAgent()
	n.awaitReport("the pod is ready", readies("app ready"))
	before := n.Running()
	n.Thaw(controlplane.APIServer)
	n.AwaitSynced()
	n.awaitReport("it still is", readies("app ready"))
	if after := n.Running(); !maps.Equal(before, after) {
		n.t.Errorf("containers %v, before the API was back %v", after, before)
	}
}

func (n *offline) ended() {
	p := n.bound(joined.Pod("job", "sleep", "10ms"))
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	p = n.Create(p)
	n.AwaitPod("job", "has ended", func(p *v1.Pod) error {
		if p.Status.Phase != v1.PodSucceeded {
			return fmt.Errorf("%s", p.Status.Phase)
		}
		return nil
	})
	n.awaitKeptEnd(p)
	n.bootWithoutAPI()
	ended := func(r joined.Report) bool {
		return slices.Equal(show(r.Pods), []string{"app ready", "job"}) &&
			slices.ContainsFunc(r.Pods, func(p *v1.Pod) bool { return p.Name == "job" && p.Status.Phase == v1.PodSucceeded })
	}
	n.awaitReport("the job is known as ended", ended)
	n.Resume(controlplane.APIServer)
	n.AwaitSynced()
	all, err := n.Containers(n.t.Context())
	n.must(err)
	runs := 0
	for _, c := range all {
		if c.UID == p.UID {
			runs++
		}
	}
	if runs != 1 {
		n.t.Errorf("%d containers of the job, want the one that ended", runs)
	}
	n.Delete("job")
	n.AwaitGone("job", p.UID)
	n.awaitForgotten(p)
}

func (n *offline) damaged(app *v1.Pod) {
	other := n.Run(n.bound(pod("other")))
	n.awaitKept(app, other)
	file := filepath.Join(n.dir(), checkpointfile.PodKey(other.Namespace, other.Name, string(other.UID)).File())
	data, err := os.ReadFile(file)
	n.must(err)
	n.Reboot()
	n.must(os.WriteFile(file, data[:len(data)/2], 0o600))
	n.Stop(controlplane.APIServer)
	n.StartAgent()
	r := n.awaitReport("the other pod is ready", readies("app ready"))
	if !says(r, "Pod default/other: ", "the file is damaged") {
		n.t.Errorf("faults: %v", r.Faults)
	}
	n.Resume(controlplane.APIServer)
	n.AwaitSynced()
	n.AwaitRunning("default/app/main", "default/other/main")
	n.awaitKept(app, other)
	n.Delete("other")
	n.AwaitGone("other", other.UID)
	n.awaitForgotten(other)
}

func (n *offline) tooOld(app *v1.Pod) {
	n.awaitKept(app)
	n.Options.Checkpoint.MaxAge = time.Nanosecond
	n.bootWithoutAPI()
	n.awaitReport("it is told what is not started", func(r joined.Report) bool { return says(r, "not started: default/app. ") && len(r.Pods) == 0 })
	if running := n.Running(); len(running) > 0 {
		n.t.Errorf("running: %v", running)
	}
	n.StopAgent()
	n.Options.Checkpoint.MaxAge = 0
	n.StartAgent()
	n.awaitReport("with a longer age it starts", readies("app ready"))
	before := n.Running()

	n.KillAgent() // now it runs: it is adopted, however old what is known of it
	n.Options.Checkpoint.MaxAge = time.Nanosecond
	n.StartAgent()
	n.awaitReport("it is adopted", readies("app ready"))
	if after := n.Running(); !maps.Equal(before, after) {
		n.t.Errorf("containers %v, before %v", after, before)
	}
	n.Options.Checkpoint.MaxAge = 0
	n.Resume(controlplane.APIServer)
	n.AwaitSynced()
	if after := n.Running(); !maps.Equal(before, after) {
		n.t.Errorf("with the API: containers %v, before %v", after, before)
	}
}

func (n *offline) anotherKey(app *v1.Pod) {
	n.awaitKept(app)
	n.Options.Checkpoint.KeyFile = keyFile(n.t, 2)
	n.bootWithoutAPI()
	n.awaitReport("it is told why", func(r joined.Report) bool {
		return says(r, "Pod default/app: ", "another key") && len(r.Pods) == 0
	})
	if running := n.Running(); len(running) > 0 {
		n.t.Errorf("running: %v", running)
	}
	n.Resume(controlplane.APIServer)
	n.AwaitSynced()
	n.AwaitRunning("default/app/main")
	n.awaitKept(app) // with the new key
}
