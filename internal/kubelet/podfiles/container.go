package podfiles

import (
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/runtimelabels"
)

// ContainerInput is what a container's configuration is made of besides the
// node.
type ContainerInput struct {
	Pod       *v1.Pod
	Container *v1.Container
	Attempt   int32     // how often it was restarted
	ImageRef  string    // as the runtime resolved it
	ImageUser ImageUser // of that image
	Env       []Var
	Mounts    []*runtimeapi.Mount
	Devices   []*runtimeapi.Device
	Given     Given    // on top of Env, Mounts and Devices
	Users     *UserIDs // the pod's own; nil: the host's
	TargetID  string   // container whose processes it sees; empty: by the pod's setting
}

// Container returns a container's configuration. An error is a fault of the
// pod's: its security context asks for what cannot be.
func (n *Node) Container(in ContainerInput) (*runtimeapi.ContainerConfig, error) {
	pod, c := in.Pod, in.Container
	sc, err := n.securityContext(pod, c, in.ImageUser)
	if err != nil {
		return nil, err
	}
	sc.NamespaceOptions.UsernsOptions = userNamespace(in.Users)
	in.Env = slices.Concat(in.Given.Env, in.Env)
	in.Mounts = slices.Concat(in.Given.Mounts, in.Mounts)
	in.Devices = slices.Concat(in.Given.Devices, in.Devices)
	mapMounts(in.Mounts, in.Users)
	if in.TargetID != "" && sc.NamespaceOptions.Pid == runtimeapi.NamespaceMode_CONTAINER {
		sc.NamespaceOptions.Pid = runtimeapi.NamespaceMode_TARGET
		sc.NamespaceOptions.TargetId = in.TargetID
	}
	vars := map[string]string{}
	for _, v := range in.Env {
		vars[v.Name] = v.Value
	}
	out := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(in.Attempt)},
		Image:       &runtimeapi.ImageSpec{Image: in.ImageRef, UserSpecifiedImage: c.Image},
		Command:     expandAll(c.Command, vars),
		Args:        expandAll(c.Args, vars),
		WorkingDir:  c.WorkingDir,
		Labels:      containerLabels(pod, c),
		Annotations: in.Given.annotations(containerAnnotations(pod, c, in.Attempt)),
		Mounts:      in.Mounts,
		Devices:     in.Devices,
		CDIDevices:  in.Given.CDIDevices,
		LogPath:     LogPath(c.Name, in.Attempt),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		StopSignal:  stopSignal(c),
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       n.Resources(pod, c),
			SecurityContext: sc,
		},
	}
	for _, v := range in.Env {
		out.Envs = append(out.Envs, &runtimeapi.KeyValue{Key: v.Name, Value: []byte(v.Value)})
	}
	return out, nil
}

func expandAll(list []string, vars map[string]string) []string {
	var out []string
	for _, s := range list {
		out = append(out, Expand(s, func(name string) (string, bool) { v, ok := vars[name]; return v, ok }))
	}
	return out
}

func containerLabels(pod *v1.Pod, c *v1.Container) map[string]string {
	return map[string]string{
		runtimelabels.PodName:       pod.Name,
		runtimelabels.PodNamespace:  pod.Namespace,
		runtimelabels.PodUID:        string(pod.UID),
		runtimelabels.ContainerName: c.Name,
	}
}

// RestartsFor reports whether a container wants to be restarted when a resource
// of it is changed.
func RestartsFor(c *v1.Container, name v1.ResourceName) bool {
	return slices.ContainsFunc(c.ResizePolicy, func(p v1.ContainerResizePolicy) bool {
		return p.ResourceName == name && p.RestartPolicy == v1.RestartContainer
	})
}

func containerAnnotations(pod *v1.Pod, c *v1.Container, attempt int32) map[string]string {
	out := map[string]string{
		runtimelabels.ContainerHash:          Hash(c),
		runtimelabels.RestartCount:           strconv.Itoa(int(attempt)),
		runtimelabels.TerminationMessagePath: c.TerminationMessagePath,
		runtimelabels.TerminationPolicy:      string(c.TerminationMessagePolicy),
	}
	if RestartsFor(c, v1.ResourceMemory) {
		out[runtimelabels.MemoryRequest] = strconv.FormatInt(c.Resources.Requests.Memory().Value(), 10)
	}
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		out[runtimelabels.PodGracePeriod] = strconv.FormatInt(*g, 10)
	}
	if g := pod.DeletionGracePeriodSeconds; g != nil {
		out[runtimelabels.PodDeletionGracePeriod] = strconv.FormatInt(*g, 10)
	}
	return out
}
