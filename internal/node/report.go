package node

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/version"
)

// report tells how the node is now.
func (n *node) report(context.Context) control.Report {
	r := control.Report{
		Node: n.cfg.NodeName, RootDir: n.in.Root, ID: n.in.ID, PID: os.Getpid(), Version: version.Version, Started: n.started,
		Kubeconfig: n.in.Kubeconfig(), ManifestDir: n.cfg.ManifestDir,
		Parts: n.board.Parts(), Faults: n.board.Faults(), Sources: []control.Source{}, Pods: []control.Pod{}, Images: []control.Image{},
	}
	select {
	case <-n.made:
	default:
		return r // nobody may ask the parts yet
	}
	select {
	case <-n.ready:
		r.Ready = true
	default:
	}
	r.API = "https://" + n.api.Address()
	r.APIOutside = n.outside()
	r.Faults = append(r.Faults, n.reachFaults()...)
	for _, c := range n.api.Certificates() {
		r.Certificates = append(r.Certificates, control.Certificate{Name: c.Name, File: c.File, Expires: c.Expires, Names: c.Names})
	}
	for _, err := range n.api.CertificateFaults() {
		r.Faults = append(r.Faults, control.Fault{Message: err.Error()})
	}
	r.Faults = append(r.Faults, n.kubeletTLS.faults()...)
	for _, pod := range n.kubelet.Pods() {
		p := reportPod(pod, n.kubelet.Ending(pod.UID))
		r.Pods = append(r.Pods, p)
		if p.Reason != "" && p.Message != "" {
			r.Faults = append(r.Faults, control.Fault{Object: "Pod " + p.Namespace + "/" + p.Name, Message: p.Reason + ": " + p.Message})
		}
	}
	if shortage := n.api.Shortage(); shortage != "" {
		r.Faults = append(r.Faults, control.Fault{Object: "Node " + n.cfg.NodeName, Message: shortage})
	}
	faults := n.kubelet.Faults()
	for _, f := range faults {
		r.Faults = append(r.Faults, control.Fault{Object: f.Object, Message: f.Message, Since: f.Since})
	}
	r.Images = n.reportArchives()
	r.Sources = addSourceFaults(n.sources(), faults)
	slices.SortFunc(r.Pods, func(a, b control.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return r
}

// reportPod makes a line of the report from a pod and its status. ending is
// whether its containers are being ended, by order.
func reportPod(pod *v1.Pod, ending bool) control.Pod {
	p := control.Pod{
		Namespace: pod.Namespace, Name: pod.Name, Source: staticpod.Source(pod),
		Phase: string(pod.Status.Phase), Reason: pod.Status.Reason, Message: pod.Status.Message,
		Total: len(pod.Spec.Containers), IP: pod.Status.PodIP,
	}
	if pod.Status.StartTime != nil {
		p.Started = pod.Status.StartTime.Time
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && p.Reason == "" && w.Message != "" {
			p.Reason, p.Message = w.Reason, "container "+c.Name+": "+w.Message
		}
		p.Restarts += c.RestartCount
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.Ready {
			p.Ready++
		}
	}
	if over := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed; ending && !over {
		// Of a pod that left and came back, the status is still that of the one
		// before.
		p.Reason, p.Message = "Terminating", ""
	}
	return p
}

// runtimeDown says what is wrong with the private containerd; "" that nothing is.
func (n *node) runtimeDown(problem string) {
	if problem == "" {
		n.board.SetPart(partRuntime, control.Running, "")
		n.board.SetFaults(partRuntime, nil)
		return
	}
	n.board.SetPart(partRuntime, control.Failing, problem)
	n.board.SetFaults(partRuntime, []control.Fault{{
		Object: "Node " + n.cfg.NodeName, Message: "containerd: " + problem, Since: time.Now(),
		Hint: "pods run on; none is started, stopped or probed by a command until it is back",
	}})
}

// setFaults puts what a finder found on the board.
func (n *node) setFaults(finder string, faults []manifest.Fault) {
	n.board.SetFaults(finder, reportFaults(faults))
	n.faultEvents.Update(finder, faults)
}

// obstacle says what keeps a node from being ready: what is wrong with the node
// itself, or else which part does not run yet.
func obstacle(r control.Report) string {
	for _, f := range r.Faults {
		if f.Object == "Node "+r.Node {
			return f.Message
		}
	}
	for _, p := range r.Parts {
		if p.State != control.Running && p.State != control.External {
			return strings.TrimSpace(p.Name + " is " + string(p.State) + " " + p.Message)
		}
	}
	return "all parts run"
}
