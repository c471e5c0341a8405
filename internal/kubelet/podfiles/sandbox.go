package podfiles

import (
	"fmt"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/runtimelabels"
)

// Sandbox returns a pod's sandbox configuration. cgroupParent is the pod's own
// cgroup as the runtime names it, users are its own user IDs, nil for the host's.
func (n *Node) Sandbox(pod *v1.Pod, attempt uint32, cgroupParent string, users *UserIDs) (*runtimeapi.PodSandboxConfig, []Warning, error) {
	out := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: attempt,
		},
		LogDirectory: LogFolder(n.PodLogs, pod.Namespace, pod.Name, pod.UID),
		PortMappings: portMappings(pod),
		Labels:       sandboxLabels(pod),
		Annotations:  maps.Clone(pod.Annotations),
	}
	if !pod.Spec.HostNetwork {
		name, domain, err := n.Hostname(pod)
		if err != nil {
			return nil, nil, err
		}
		if out.Hostname, err = kernelHostname(pod, name, domain); err != nil {
			return nil, nil, err
		}
	}
	sc, err := sandboxSecurity(pod)
	if err != nil {
		return nil, nil, err
	}
	sc.NamespaceOptions.UsernsOptions = userNamespace(users)
	out.Linux = &runtimeapi.LinuxPodSandboxConfig{
		CgroupParent:    cgroupParent,
		SecurityContext: sc,
		Sysctls:         sysctls(pod),
	}
	out.Linux.Resources, out.Linux.Overhead = n.sandboxResources(pod)
	var warnings []Warning
	out.DnsConfig, warnings = n.PodDNS(pod)
	return out, warnings, nil
}

func sandboxLabels(pod *v1.Pod) map[string]string {
	out := map[string]string{}
	maps.Copy(out, pod.Labels)
	out[runtimelabels.PodName] = pod.Name
	out[runtimelabels.PodNamespace] = pod.Namespace
	out[runtimelabels.PodUID] = string(pod.UID)
	return out
}

// portMappings returns the ports of the regular containers, as upstream's do;
// the runtime acts on those with a host port.
func portMappings(pod *v1.Pod) []*runtimeapi.PortMapping {
	var out []*runtimeapi.PortMapping
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			m := &runtimeapi.PortMapping{ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP}
			switch p.Protocol {
			case v1.ProtocolUDP:
				m.Protocol = runtimeapi.Protocol_UDP
			case v1.ProtocolSCTP:
				m.Protocol = runtimeapi.Protocol_SCTP
			default:
				m.Protocol = runtimeapi.Protocol_TCP
			}
			out = append(out, m)
		}
	}
	return out
}

func sandboxSecurity(pod *v1.Pod) (*runtimeapi.LinuxSandboxSecurityContext, error) {
	out := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(pod),
		// The sandbox runs only the pause program, whatever the containers want.
		Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	for _, c := range Containers(pod) {
		if c.SecurityContext != nil && isTrue(c.SecurityContext.Privileged) {
			out.Privileged = true
		}
	}
	psc := pod.Spec.SecurityContext
	if psc == nil {
		return out, nil
	}
	out.RunAsUser = int64Value(psc.RunAsUser)
	out.RunAsGroup = int64Value(psc.RunAsGroup)
	out.SelinuxOptions = selinux(psc.SELinuxOptions)
	var err error
	out.SupplementalGroups, out.SupplementalGroupsPolicy, err = supplementalGroups(psc)
	if err != nil {
		return nil, fmt.Errorf("sandbox of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return out, nil
}

// sysctls returns the pod's kernel settings with dots as separators, which is
// what the runtime checks against the namespaces.
func sysctls(pod *v1.Pod) map[string]string {
	out := map[string]string{}
	if pod.Spec.SecurityContext == nil {
		return out
	}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		out[SysctlName(s.Name)] = s.Value
	}
	return out
}

// SysctlName returns a kernel setting's name with dots as separators. A name
// whose first separator is a slash has dots inside its parts, such as an
// interface's name; they become slashes.
func SysctlName(name string) string {
	if i := strings.IndexAny(name, "./"); i < 0 || name[i] == '.' {
		return name
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		default:
			return r
		}
	}, name)
}
