package podadmit

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

// safe are the kernel settings that change nothing outside the pod, as
// upstream lists them. All are separate for each pod on every kernel that this
// version runs on.
var safe = []string{
	"kernel.shm_rmid_forced",
	"net.ipv4.ip_local_port_range",
	"net.ipv4.tcp_syncookies",
	"net.ipv4.ping_group_range",
	"net.ipv4.ip_unprivileged_port_start",
	"net.ipv4.ip_local_reserved_ports",
	"net.ipv4.tcp_keepalive_time",
	"net.ipv4.tcp_fin_timeout",
	"net.ipv4.tcp_keepalive_intvl",
	"net.ipv4.tcp_keepalive_probes",
	"net.ipv4.tcp_rmem",
	"net.ipv4.tcp_wmem",
	"net.ipv4.tcp_slow_start_after_idle",
	"net.ipv4.tcp_notsent_lowat",
}

// sysctls refuses a pod with kernel settings that would reach beyond it.
func sysctls(n Node, pod *v1.Pod, _ []*v1.Pod) *Refusal {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	shared := map[sysctl.Namespace]bool{
		sysctl.NetNamespace: pod.Spec.HostNetwork, sysctl.IPCNamespace: pod.Spec.HostIPC, sysctl.UserNamespace: !podfiles.WantsUserIDs(pod),
	}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		name := podfiles.SysctlName(s.Name)
		why := ""
		namespace, _, _ := sysctl.GetNamespace(name)
		switch {
		case !listed(safe, name) && !listed(n.UnsafeSysctls, name):
			why = "not allowlisted"
		case shared[namespace]:
			why = fmt.Sprintf("not allowed with host %s enabled", namespace)
		}
		if why != "" {
			return &Refusal{"SysctlForbidden", fmt.Sprintf("forbidden sysctl: %q %s", name, why)}
		}
	}
	return nil
}

// CheckSysctls returns what is wrong with a list of kernel settings that pods
// may have beside the safe ones: a name, or a beginning with *, of which the
// kernel does not keep one for each pod.
func CheckSysctls(list []string) error {
	for _, entry := range list {
		if namespace, name, _ := sysctl.GetNamespace(entry); namespace == sysctl.UnknownNamespace {
			return fmt.Errorf("the sysctls %q are not known to be namespaced", name)
		}
		if strings.Contains(strings.TrimSuffix(entry, "*"), "*") {
			return fmt.Errorf("%q: a * stands for anything only at the end", entry)
		}
	}
	return nil
}

// listed reports whether a list of names, or of beginnings with *, has name.
func listed(list []string, name string) bool {
	return slices.ContainsFunc(list, func(entry string) bool {
		entry = podfiles.SysctlName(entry)
		if prefix, ok := strings.CutSuffix(entry, "*"); ok {
			return strings.HasPrefix(name, prefix)
		}
		return entry == name
	})
}
