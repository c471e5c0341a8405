package joined_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/figures"
	"github.com/holdfast-dev/holdfast/test/joined"
)

// TestPods: what a pod of a real cluster does on this node, with the rights that
// a node has there.
func TestPods(t *testing.T) {
	n := joined.Start(t, joined.Config{})
	t.Run("runs where the scheduler bound it and is told to the API", func(t *testing.T) { testStatus(t, n.In(t)) })
	t.Run("its log comes through the API server", func(t *testing.T) { testLogs(t, n.In(t)) })
	t.Run("what it uses comes through the API server", func(t *testing.T) { testFigures(t, n.In(t)) })
	t.Run("the node's API lets in whom the cluster lets", func(t *testing.T) { testWhoGetsIn(t, n.In(t)) })
	t.Run("the configuration that it shows is one", func(t *testing.T) { testConfigz(t, n.In(t)) })
	t.Run("commands, attached input and ports come through the API server", func(t *testing.T) { testStreams(t, n.In(t)) })
	t.Run("an edit restarts nothing", func(t *testing.T) { testEdit(t, n.In(t)) })
	t.Run("its ConfigMap follows", func(t *testing.T) { testConfigMap(t, n.In(t)) })
	t.Run("ends within its grace", func(t *testing.T) { testGrace(t, n.In(t)) })
	t.Run("ends though it was deleted while the agent was down", func(t *testing.T) { testDeletedMeanwhile(t, n.In(t)) })
	t.Run("a static pod has a mirror", func(t *testing.T) { testMirror(t, n.In(t)) })
	t.Run("of a static pod's name", func(t *testing.T) { testDuplicate(t, n.In(t)) })
	n.AwaitNoLeaks(uids(t, n)...)
	checkRights(t, n.Requests(""))
}

// checkRights fails the test if the node was refused anything but for a moment:
// the server may learn of a pod, which gives the node rights, after the node does.
func checkRights(t *testing.T, requests []joined.Request) {
	t.Helper()
	refused := map[string]joined.Request{}
	for _, r := range requests {
		path, _, _ := strings.Cut(r.URI, "?")
		switch r.Code {
		case http.StatusForbidden, http.StatusUnauthorized:
			refused[r.Verb+" "+path] = r
		default:
			delete(refused, r.Verb+" "+path)
		}
	}
	for _, r := range refused {
		t.Errorf("the node may not %s %s: %d", r.Verb, r.URI, r.Code)
	}
}

// uids returns the pods that the node has.
func uids(t *testing.T, n *joined.Node) []types.UID {
	t.Helper()
	pods, err := n.Admin.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name})
	if err != nil {
		t.Fatal(err)
	}
	var uids []types.UID
	for _, p := range pods.Items {
		uids = append(uids, p.UID)
		if hash := p.Annotations["kubernetes.io/config.mirror"]; hash != "" {
			uids = append(uids, types.UID(hash)) // of the static pod that it shows
		}
	}
	return uids
}

func testStatus(t *testing.T, n *joined.Node) {
	pod := n.Run(joined.Pod("status"))
	got := pod.Status
	if got.Phase != v1.PodRunning || got.HostIP != n.Instance.Gateway().String() || got.StartTime == nil || got.QOSClass != v1.PodQOSBestEffort {
		t.Errorf("status: %+v", got)
	}
	if ip := got.PodIP; ip == "" || ip == got.HostIP {
		t.Errorf("address %q on %q", ip, got.HostIP)
	}
	c := got.ContainerStatuses[0]
	if id := n.Running()["default/status/main"]; c.ContainerID != "containerd://"+id || c.RestartCount != 0 {
		t.Errorf("container %s, the runtime has %s; restarts %d", c.ContainerID, id, c.RestartCount)
	}
	token := volume(n, pod, "kubernetes.io~projected", pod.Spec.Volumes[0].Name, "token")
	if data, err := os.ReadFile(token); err != nil || strings.Count(string(data), ".") != 2 {
		t.Errorf("token of the service account: %q, %v", data, err)
	}
}

// volume is a file in a pod's volume.
func volume(n *joined.Node, pod *v1.Pod, plugin, name, file string) string {
	return filepath.Join(n.Instance.Path("kubelet", "pods", string(pod.UID), "volumes"), plugin, name, file)
}

func testLogs(t *testing.T, n *joined.Node) {
	p := joined.Pod("words", "echo", "good", "day")
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	n.Create(p)
	n.AwaitPod("words", "has ended well", func(pod *v1.Pod) error {
		if pod.Status.Phase != v1.PodSucceeded {
			return fmt.Errorf("phase %s: %v", pod.Status.Phase, pod.Status.ContainerStatuses)
		}
		return nil
	})
	log, err := n.Admin.CoreV1().Pods("default").GetLogs("words", &v1.PodLogOptions{}).DoRaw(t.Context())
	if got, want := string(log), "good day\n"; err != nil || got != want {
		t.Errorf("log: got %q, %v, want %q", got, err, want)
	}
}

// testFigures asks as "holdfast top" does.
func testFigures(t *testing.T, n *joined.Node) {
	n.Run(joined.Pod("used"))
	source := figures.New(n.Admin.CoreV1())
	n.AwaitPod("used", "has figures, and its volume", func(*v1.Pod) error {
		r, err := source.Report(t.Context(), figures.Scope{Namespace: "default", Pod: "used", Volumes: true})
		if err != nil {
			return err
		}
		if len(r.Failed) > 0 || len(r.Nodes) != 1 || len(r.Pods) != 1 || len(r.Volumes) != 1 {
			return fmt.Errorf("%d nodes, %d pods, %d volumes, failed %v", len(r.Nodes), len(r.Pods), len(r.Volumes), r.Failed)
		}
		p, v := r.Pods[0], r.Volumes[0]
		if p.NodeName != n.Name || p.Memory == nil || p.CPU == nil || p.CPU.UsageNanoCores == nil || p.Network == nil {
			return fmt.Errorf("pod: %+v", p)
		}
		if v.Kind != "projected" || v.Method != "filesystem" || v.UsedBytes == nil {
			return fmt.Errorf("volume: %+v", v)
		}
		return nil
	})
}

func testEdit(t *testing.T, n *joined.Node) {
	p := joined.Pod("edited")
	p.Labels = map[string]string{"colour": "red"}
	p.Spec.Volumes = []v1.Volume{{Name: "labels", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
		Items: []v1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}}},
	}}}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "labels", MountPath: "/labels"}}
	pod := n.Run(p)
	before := n.Running()
	file := volume(n, pod, "kubernetes.io~downward-api", "labels", "labels")
	awaitFile(n, file, `colour="red"`)

	patch := []byte(`{"metadata":{"labels":{"colour":"blue"},"annotations":{"note":"hello"}}}`)
	if _, err := n.Admin.CoreV1().Pods("default").Patch(t.Context(), "edited", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitFile(n, file, `colour="blue"`)
	if after := n.Running(); !maps.Equal(after, before) {
		t.Errorf("containers %v, before %v", after, before)
	}
}

func awaitFile(n *joined.Node, file, want string) {
	n.Eventually(fmt.Sprintf("%s says %s", filepath.Base(file), want), func(context.Context) (bool, error) {
		data, err := os.ReadFile(file)
		return strings.Contains(string(data), want), fmt.Errorf("it says %q, %w", data, err)
	})
}

func testConfigMap(t *testing.T, n *joined.Node) {
	maps := n.Admin.CoreV1().ConfigMaps("default")
	cm := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"mode": "slow"}}
	if _, err := maps.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := joined.Pod("configured")
	p.Spec.Volumes = []v1.Volume{{Name: "settings", VolumeSource: v1.VolumeSource{
		ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}},
	}}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "settings", MountPath: "/settings"}}
	pod := n.Run(p)
	file := volume(n, pod, "kubernetes.io~configmap", "settings", "mode")
	awaitFile(n, file, "slow")
	cm.Data["mode"] = "fast"
	if _, err := maps.Update(t.Context(), cm, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitFile(n, file, "fast")
}

func testGrace(t *testing.T, n *joined.Node) {
	p := joined.Pod("slow")
	p.Spec.TerminationGracePeriodSeconds = new(int64(30))
	p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 5}}}
	pod := n.Run(p)
	before := n.Running()["default/slow/main"]
	n.Delete("slow")
	n.AwaitPod("slow", "is being deleted", func(pod *v1.Pod) error {
		if pod.DeletionTimestamp == nil || *pod.DeletionGracePeriodSeconds != 30 {
			return fmt.Errorf("deletion: %v", pod.DeletionTimestamp)
		}
		return nil
	})
	if got := n.Running()["default/slow/main"]; got != before {
		t.Errorf("within its grace %q runs, before %q", got, before)
	}
	n.AwaitGone("slow", pod.UID)
	if got := n.Running()["default/slow/main"]; got != "" {
		t.Errorf("the API has it no more, and %s runs", got)
	}
}

func testDeletedMeanwhile(t *testing.T, n *joined.Node) {
	pod := n.Run(joined.Pod("forsaken"))
	n.KillAgent()
	n.Delete("forsaken")
	if n.Running()["default/forsaken/main"] == "" {
		t.Error("it does not run on without the agent")
	}
	n.StartAgent()
	n.AwaitGone("forsaken", pod.UID)
}

const staticPod = `apiVersion: v1
kind: Pod
metadata: {name: fixed}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: ` + joined.Image + `, imagePullPolicy: IfNotPresent, args: [sleep, 24h]}
`

func testMirror(t *testing.T, n *joined.Node) {
	file := filepath.Join(n.ManifestDir(), "fixed.yaml")
	if err := os.WriteFile(file, []byte(staticPod), 0o600); err != nil {
		t.Fatal(err)
	}
	mirror := n.AwaitPodReady("fixed-" + n.Name)
	if mirror.Annotations["kubernetes.io/config.source"] != "file" {
		t.Errorf("annotations of the mirror: %v", mirror.Annotations)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	n.AwaitGone(mirror.Name, mirror.UID)
	n.AwaitNotRunning("default/" + mirror.Name + "/main")
}

// testDuplicate: the API has a pod of the name that a static pod takes.
func testDuplicate(t *testing.T, n *joined.Node) {
	name := "twin-" + n.Name
	n.Run(joined.Pod(name))
	before := n.Running()["default/"+name+"/main"]
	file := filepath.Join(n.ManifestDir(), "twin.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(staticPod, "fixed", "twin", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Eventually("an event names both", func(ctx context.Context) (bool, error) {
		events, err := n.Admin.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedValidation,involvedObject.name=" + name})
		if err != nil {
			return false, err
		}
		for _, e := range events.Items {
			if strings.Contains(e.Message, `source "api"`) && strings.Contains(e.Message, "twin.yaml:1") {
				return true, nil
			}
		}
		return false, fmt.Errorf("events: %+v", events.Items)
	})
	all, err := n.Containers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	runs := false
	for _, c := range all {
		runs = runs || c.ID == before && c.Running
	}
	if !runs {
		t.Errorf("the API's pod is gone: %+v", all)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	n.Eventually("only the API's pod runs", func(ctx context.Context) (bool, error) {
		all, err := n.Containers(ctx)
		count := 0
		for _, c := range all {
			if c.Pod.Name == name && c.Running && c.ID == before {
				count++
			} else if c.Pod.Name == name {
				count += 10
			}
		}
		return count == 1, fmt.Errorf("containers %+v, %w", all, err)
	})
}
