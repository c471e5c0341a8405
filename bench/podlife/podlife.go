// Package podlife measures what pods' lives cost on a node, from outside: how soon
// the API says that they run and that they are gone, and what the agent's process
// uses meanwhile. The node may be ours or another; whoever calls Measure has
// started it, and it has no pods.
//
// Its benchmark measures a node of ours that is joined to a real control plane,
// and the upstream kubelet in the same place.
package podlife

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-dev/holdfast/bench/procfs"
)

const (
	// patience bounds every wait; it is far above anything measured.
	patience = 3 * time.Minute
	// warmUp is how many pods go first and are not counted.
	warmUp = 2
	label  = "podlife"
	// Crowd is how many pods a burst has.
	Crowd = 20
	// Half is half as many as a full node has.
	Half = 50
)

// Node is the node that is measured.
type Node struct {
	// Name is put into the pods, so that no scheduler has a part in it. Empty: whoever
	// binds pods does.
	Name string
	// Image of the pods, which is there already. It is given the argument "serve"
	// and ends at the first signal.
	Image string
	// Client of an administrator.
	Client kubernetes.Interface
	// Agent and Runtime are process IDs: of the agent, and of the container
	// runtime's server.
	Agent, Runtime int
	// Single is how many pods to start one at a time, Bursts how many bursts. Default: 20, 3.
	Single, Bursts int
	// Requests returns how many requests the API server has had of the node. Nil: it is
	// not known.
	Requests func() int
	// Pods is the agent's folder of pods on this machine. Empty: how soon a changed
	// ConfigMap is in a pod is not measured.
	Pods string
	// Say is told how far it is. Default: nobody.
	Say func(format string, args ...any)

	configMap bool // pods have one as a volume
}

// A Life is what was measured.
type Life struct {
	Start, Gone Series // pods one at a time: create → Running; delete → gone
	Burst       Series // Crowd pods at once → all Running
	BurstGone   Series // Crowd pods deleted at once → all gone
	Fill        [2]time.Duration
	Empty       time.Duration // 2*Half pods deleted at once → all gone
	Update      Series        // ConfigMap changed → file changed, of each of Half pods; none if it was not measured

	SingleCost, FillCost cost         // from create to gone; from create to Running
	Full                 procfs.Usage // agent, with 2*Half pods
}

// A cost is what each pod takes.
type cost struct {
	Agent, Runtime time.Duration // processor time
	Requests       float64       // to the API server
}

// Measure takes a node through everything. The node has no pods afterwards.
func Measure(ctx context.Context, n Node) (l *Life, err error) {
	if n.Say == nil {
		n.Say = func(string, ...any) {}
	}
	if n.Requests == nil {
		n.Requests = func() int { return 0 }
	}
	if n.Single == 0 {
		n.Single = 20
	}
	if n.Bursts == 0 {
		n.Bursts = 3
	}
	w, err := follow(ctx, n.Client)
	if err != nil {
		return nil, err
	}
	defer func() { w.Stop() }() // the one that is open then
	l = &Life{}
	for _, step := range []func(context.Context, Node, *follower) error{l.single, l.bursts, l.fill, l.update} {
		if err := step(ctx, n, w); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *Life) single(ctx context.Context, n Node, w *follower) (err error) {
	var began cost
	for i := range warmUp + n.Single {
		if i == warmUp {
			if began, err = n.used(); err != nil {
				return err
			}
		}
		n.Say("pod %d of %d", i+1, warmUp+n.Single)
		names := []string{fmt.Sprintf("single-%d", i)}
		start, err := n.start(ctx, w, names)
		if err != nil {
			return err
		}
		gone, err := n.remove(ctx, w, names)
		if err != nil {
			return err
		}
		if i >= warmUp {
			l.Start, l.Gone = append(l.Start, start), append(l.Gone, gone)
		}
	}
	l.SingleCost, err = n.since(began, n.Single)
	return err
}

func (l *Life) bursts(ctx context.Context, n Node, w *follower) error {
	for i := range n.Bursts {
		n.Say("burst %d of %d", i+1, n.Bursts)
		names := crowd(fmt.Sprintf("burst-%d", i), Crowd)
		start, err := n.start(ctx, w, names)
		if err != nil {
			return err
		}
		gone, err := n.remove(ctx, w, names)
		if err != nil {
			return err
		}
		l.Burst, l.BurstGone = append(l.Burst, start), append(l.BurstGone, gone)
	}
	return nil
}

func (l *Life) fill(ctx context.Context, n Node, w *follower) error {
	began, err := n.used()
	if err != nil {
		return err
	}
	var all []string
	for i := range l.Fill {
		n.Say("%d pods", (i+1)*Half)
		names := crowd(fmt.Sprintf("fill-%d", i), Half)
		if l.Fill[i], err = n.start(ctx, w, names); err != nil {
			return err
		}
		all = append(all, names...)
	}
	if l.FillCost, err = n.since(began, len(all)); err != nil {
		return err
	}
	if l.Full, err = procfs.ReadUsage(n.Agent); err != nil {
		return err
	}
	n.Say("no pods")
	l.Empty, err = n.remove(ctx, w, all)
	return err
}

func crowd(prefix string, size int) []string {
	var names []string
	for i := range size {
		names = append(names, fmt.Sprintf("%s-%d", prefix, i))
	}
	return names
}

// used is what the processes have used until now.
func (n Node) used() (c cost, err error) {
	agent, err := procfs.ReadUsage(n.Agent)
	if err != nil {
		return c, err
	}
	runtime, err := procfs.ReadUsage(n.Runtime)
	return cost{agent.CPU, runtime.CPU, float64(n.Requests())}, err
}

func (n Node) since(began cost, pods int) (cost, error) {
	now, err := n.used()
	return cost{
		(now.Agent - began.Agent) / time.Duration(pods), (now.Runtime - began.Runtime) / time.Duration(pods),
		(now.Requests - began.Requests) / float64(pods),
	}, err
}

// start creates pods and returns how long after the first request the API says
// that all run.
func (n Node) start(ctx context.Context, w *follower, names []string) (time.Duration, error) {
	began, err := n.create(ctx, names)
	if err != nil {
		return 0, err
	}
	ended, err := w.await(ctx, names, "Running")
	return ended.Sub(began), err
}

// create creates pods and returns when the first request was sent.
func (n Node) create(ctx context.Context, names []string) (began time.Time, err error) {
	began = time.Now()
	for _, name := range names {
		if _, err := n.Client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, n.pod(name), metav1.CreateOptions{}); err != nil {
			return began, err
		}
	}
	return began, nil
}

// remove deletes pods and returns how long after the first request the API says
// that all are gone.
func (n Node) remove(ctx context.Context, w *follower, names []string) (time.Duration, error) {
	began := time.Now()
	for _, name := range names {
		if err := n.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return 0, err
		}
	}
	ended, err := w.await(ctx, names, gone)
	return ended.Sub(began), err
}

func (n Node) pod(name string) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault, Labels: map[string]string{label: ""}},
		Spec: v1.PodSpec{
			NodeName:   n.Name,
			Containers: []v1.Container{{Name: "main", Image: n.Image, ImagePullPolicy: v1.PullIfNotPresent, Args: []string{"serve"}}},
		},
	}
	if n.configMap {
		source := &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: settings}}
		pod.Spec.Volumes = []v1.Volume{{Name: settings, VolumeSource: v1.VolumeSource{ConfigMap: source}}}
		pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: settings, MountPath: "/settings"}}
	}
	return pod
}
