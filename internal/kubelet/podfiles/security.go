package podfiles

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What the default proc mount hides and protects, as the runtimes' own default
// has it. A pod that asks for procMount: Unmasked gets neither.
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
		"/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// apparmorAnnotation is the older form of the AppArmor field, by container.
const apparmorAnnotation = "container.apparmor.security.beta.kubernetes.io/"

// An ImageUser is the user that an image runs as unless the pod says otherwise.
type ImageUser struct {
	UID  *int64 // nil: the image names a user by name, or none
	Name string
}

// securityContext returns a container's security context; the container's
// fields win over the pod's.
func (n *Node) securityContext(pod *v1.Pod, c *v1.Container, user ImageUser) (*runtimeapi.LinuxContainerSecurityContext, error) {
	sc, psc := c.SecurityContext, pod.Spec.SecurityContext
	if sc == nil {
		sc = &v1.SecurityContext{}
	}
	if psc == nil {
		psc = &v1.PodSecurityContext{}
	}
	if err := checkNonRoot(pod, c, user); err != nil {
		return nil, err
	}
	groups, policy, err := supplementalGroups(psc)
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.LinuxContainerSecurityContext{
		Capabilities:             capabilities(sc.Capabilities),
		Privileged:               isTrue(sc.Privileged),
		NamespaceOptions:         namespaces(pod),
		SelinuxOptions:           selinux(first(sc.SELinuxOptions, psc.SELinuxOptions)),
		RunAsUser:                int64Value(first(sc.RunAsUser, psc.RunAsUser, user.UID)),
		RunAsGroup:               int64Value(first(sc.RunAsGroup, psc.RunAsGroup)),
		ReadonlyRootfs:           isTrue(sc.ReadOnlyRootFilesystem),
		SupplementalGroups:       groups,
		SupplementalGroupsPolicy: policy,
		NoNewPrivs:               sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
		Seccomp:                  n.seccomp(first(sc.SeccompProfile, psc.SeccompProfile)),
		Apparmor:                 apparmor(appArmorProfile(pod, c)),
		MaskedPaths:              slices.Concat(maskedPaths, n.HiddenPaths),
		ReadonlyPaths:            slices.Clone(readonlyPaths),
	}
	if first(sc.RunAsUser, psc.RunAsUser) == nil {
		out.RunAsUsername = user.Name
	}
	if sc.ProcMount != nil && *sc.ProcMount == v1.UnmaskedProcMount {
		out.MaskedPaths, out.ReadonlyPaths = []string{}, []string{}
	}
	return out, nil
}

// checkNonRoot refuses a container that must not run as root and would, or
// might: an image user given by name cannot be judged.
func checkNonRoot(pod *v1.Pod, c *v1.Container, user ImageUser) error {
	sc, psc := c.SecurityContext, pod.Spec.SecurityContext
	if sc == nil {
		sc = &v1.SecurityContext{}
	}
	if psc == nil {
		psc = &v1.PodSecurityContext{}
	}
	if !isTrue(first(sc.RunAsNonRoot, psc.RunAsNonRoot)) {
		return nil
	}
	where := fmt.Sprintf("(pod: %q, container: %s)", pod.Name+"_"+pod.Namespace+"("+string(pod.UID)+")", c.Name)
	switch uid := first(sc.RunAsUser, psc.RunAsUser); {
	case uid != nil && *uid == 0:
		return fmt.Errorf("container's runAsUser breaks non-root policy %s", where)
	case uid != nil:
		return nil
	case user.UID != nil && *user.UID == 0, user.UID == nil && user.Name == "":
		return fmt.Errorf("container has runAsNonRoot and image will run as root %s", where)
	case user.UID == nil:
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s", user.Name, where)
	}
	return nil
}

func supplementalGroups(psc *v1.PodSecurityContext) ([]int64, runtimeapi.SupplementalGroupsPolicy, error) {
	var groups []int64
	if psc.FSGroup != nil {
		groups = append(groups, *psc.FSGroup)
	}
	groups = append(groups, psc.SupplementalGroups...)
	if psc.SupplementalGroupsPolicy == nil {
		return groups, 0, nil
	}
	policy, ok := runtimeapi.SupplementalGroupsPolicy_value[string(*psc.SupplementalGroupsPolicy)]
	if !ok {
		return nil, 0, fmt.Errorf("unsupported supplementalGroupsPolicy: %s", *psc.SupplementalGroupsPolicy)
	}
	return groups, runtimeapi.SupplementalGroupsPolicy(policy), nil
}

func namespaces(pod *v1.Pod) *runtimeapi.NamespaceOption {
	out := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER} // the others' zero is POD
	if pod.Spec.HostNetwork {
		out.Network = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		out.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case pod.Spec.HostPID:
		out.Pid = runtimeapi.NamespaceMode_NODE
	case isTrue(pod.Spec.ShareProcessNamespace):
		out.Pid = runtimeapi.NamespaceMode_POD
	}
	return out
}

func (n *Node) seccomp(p *v1.SeccompProfile) *runtimeapi.SecurityProfile {
	switch {
	case p == nil && n.SeccompDefault, p != nil && p.Type == v1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	case p != nil && p.Type == v1.SeccompProfileTypeLocalhost && p.LocalhostProfile != nil:
		// API validation refuses a path that leaves the folder.
		return &runtimeapi.SecurityProfile{
			ProfileType:  runtimeapi.SecurityProfile_Localhost,
			LocalhostRef: filepath.Join(n.SeccompFolder, filepath.Join("/", *p.LocalhostProfile)),
		}
	default:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	}
}

// appArmorProfile returns the profile that applies to a container: its own
// field, the older annotation, the pod's field, or nil.
func appArmorProfile(pod *v1.Pod, c *v1.Container) *v1.AppArmorProfile {
	if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
		return c.SecurityContext.AppArmorProfile
	}
	switch value := pod.Annotations[apparmorAnnotation+c.Name]; {
	case value == "runtime/default":
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	case value == "unconfined":
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	case strings.HasPrefix(value, "localhost/"):
		name := strings.TrimPrefix(value, "localhost/")
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	if pod.Spec.SecurityContext != nil {
		return pod.Spec.SecurityContext.AppArmorProfile
	}
	return nil
}

// AppArmor reports whether a container asks for an AppArmor profile, so that
// it can be refused on a host without AppArmor.
func AppArmor(pod *v1.Pod, c *v1.Container) bool {
	p := appArmorProfile(pod, c)
	return p != nil && p.Type != v1.AppArmorProfileTypeUnconfined
}

func apparmor(p *v1.AppArmorProfile) *runtimeapi.SecurityProfile {
	switch {
	case p == nil:
		return nil
	case p.Type == v1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	case p.Type == v1.AppArmorProfileTypeLocalhost && p.LocalhostProfile != nil:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *p.LocalhostProfile}
	default:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	}
}

func capabilities(c *v1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	out := &runtimeapi.Capability{}
	for _, name := range c.Add {
		out.AddCapabilities = append(out.AddCapabilities, string(name))
	}
	for _, name := range c.Drop {
		out.DropCapabilities = append(out.DropCapabilities, string(name))
	}
	return out
}

func selinux(o *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func int64Value(v *int64) *runtimeapi.Int64Value {
	if v == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *v}
}

// first returns the first pointer that is not nil, or nil.
func first[T any](all ...*T) *T {
	for _, p := range all {
		if p != nil {
			return p
		}
	}
	return nil
}

func isTrue(b *bool) bool { return b != nil && *b }
