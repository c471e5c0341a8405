// Package figures asks the kubelets of a cluster what their nodes, pods and volumes use,
// and prints it.
//
// The figures are those of each kubelet's Summary, asked for through the API, so that it
// works for every kubelet. What upstream's Summary has no field for, the kind and the
// method of a volume's figures, comes from a series of our own kubelet's, and is empty
// for others.
//
// A node that does not answer costs its own rows alone. The functions that sort and
// print are pure.
package figures

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// A Node is what one node uses.
type Node struct {
	statsapi.NodeStats
	// Allocatable is what the node has for pods.
	Allocatable v1.ResourceList `json:"allocatable,omitempty"`
}

// A Pod is what one pod uses.
type Pod struct {
	NodeName string `json:"nodeName"`
	statsapi.PodStats
}

// A Container is what one container of a pod uses.
type Container struct {
	NodeName string                `json:"nodeName"`
	PodRef   statsapi.PodReference `json:"podRef"`
	statsapi.ContainerStats
}

// Containers returns those of pods, in their order.
func Containers(pods []Pod) []Container {
	all := []Container{} // in JSON none is a list, too
	for i := range pods {
		for _, c := range pods[i].Containers {
			all = append(all, Container{pods[i].NodeName, pods[i].PodRef, c})
		}
	}
	return all
}

// A Volume is what one volume of one pod takes.
type Volume struct {
	NodeName string                `json:"nodeName"`
	PodRef   statsapi.PodReference `json:"podRef"`
	// Kind is what it is called in the pod's spec, such as emptyDir. Empty: the kubelet
	// does not tell.
	Kind string `json:"kind,omitempty"`
	// Method is how it came to be measured, such as quota. Empty: as above.
	Method string `json:"method,omitempty"`
	// Stale is whether the last try to measure it has failed, or hangs.
	Stale bool `json:"stale,omitempty"`
	statsapi.VolumeStats
}

// A Report is what the nodes say, each at its own time.
type Report struct {
	Nodes   []Node
	Pods    []Pod
	Volumes []Volume // of the pods above
	// Failed names the nodes that did not answer, and why.
	Failed []error
}

const (
	// nodeTimeout bounds the questions to one node. A kubelet answers from memory.
	nodeTimeout = 15 * time.Second
	// parallel is how many nodes are asked at once.
	parallel = 16
)

// A Source asks one cluster. It may be used by several goroutines.
type Source struct {
	api corev1.CoreV1Interface
}

// New returns a Source for an API. It asks nothing. The API's client should not bound how
// many requests it makes in a second: each node is asked twice.
func New(api corev1.CoreV1Interface) *Source { return &Source{api} }

// A Scope says whom to ask and what to keep of the answers.
type Scope struct {
	Node      string // only this node is asked; empty: all are
	Namespace string // of pods; empty: of all namespaces
	Pod       string // its name; empty: any
	Volumes   bool   // also ask how volumes were measured
}

// Report asks the nodes. An error means that not even which nodes there are is known, or
// that the scope names a pod that is not there.
func (s *Source) Report(ctx context.Context, scope Scope) (*Report, error) {
	nodes, err := s.nodes(ctx, scope.Node)
	if err != nil {
		return nil, err
	}
	answers := make([]answer, len(nodes))
	places := make(chan struct{}, parallel)
	var asking sync.WaitGroup
	for i := range nodes {
		asking.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			answers[i] = s.ask(ctx, nodes[i].Name, scope.Volumes)
		})
	}
	asking.Wait()
	r := &Report{Nodes: []Node{}, Pods: []Pod{}, Volumes: []Volume{}} // in JSON none is a list, too
	for i := range answers {
		r.add(&nodes[i], &answers[i], scope)
	}
	if len(r.Pods) == 0 && scope.Pod != "" && scope.Namespace != "" {
		// Whoever may not see pods may still see what they use.
		if _, err := s.api.Pods(scope.Namespace).Get(ctx, scope.Pod, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("get pod %s/%s: %w", scope.Namespace, scope.Pod, err)
		}
	}
	return r, nil
}

func (s *Source) nodes(ctx context.Context, name string) ([]v1.Node, error) {
	if name != "" {
		node, err := s.api.Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("get node %s: %w", name, err)
		}
		return []v1.Node{*node}, nil
	}
	list, err := s.api.Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return list.Items, nil
}

// answer is what one node says.
type answer struct {
	summary statsapi.Summary
	how     map[volumeKey]measured
	err     error
}

func (s *Source) ask(ctx context.Context, node string, volumes bool) answer {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	var a answer
	data, err := s.get(ctx, node, "stats/summary")
	if err == nil {
		err = json.Unmarshal(data, &a.summary)
	}
	if err != nil {
		return answer{err: fmt.Errorf("node %s: %w", node, err)}
	}
	if volumes {
		// Another kubelet has no such series, or does not let us see it: no fault.
		if data, err := s.get(ctx, node, "metrics"); err == nil {
			a.how = parseMeasured(data)
		}
	}
	return a
}

func (s *Source) get(ctx context.Context, node, path string) ([]byte, error) {
	data, err := s.api.RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix(path).Do(ctx).Raw()
	if err != nil && ctx.Err() != nil {
		err = errors.New("it has not answered in time")
	}
	return data, err
}

// add takes one node's answer into the report.
func (r *Report) add(node *v1.Node, a *answer, scope Scope) {
	if a.err != nil {
		r.Failed = append(r.Failed, a.err)
		return
	}
	r.Nodes = append(r.Nodes, Node{NodeStats: a.summary.Node, Allocatable: node.Status.Allocatable})
	for i := range a.summary.Pods {
		p := &a.summary.Pods[i]
		if scope.Namespace != "" && scope.Namespace != p.PodRef.Namespace || scope.Pod != "" && scope.Pod != p.PodRef.Name {
			continue
		}
		r.Pods = append(r.Pods, Pod{node.Name, *p})
		for _, v := range p.VolumeStats {
			how := a.how[volumeKey{p.PodRef.Namespace, p.PodRef.Name, v.Name}]
			if how.kind == "" && v.PVCRef != nil {
				how.kind = "persistentVolumeClaim"
			}
			r.Volumes = append(r.Volumes, Volume{NodeName: node.Name, PodRef: p.PodRef, Kind: how.kind, Method: how.method, Stale: how.stale, VolumeStats: v})
		}
	}
}
