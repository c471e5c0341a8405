package podadmit

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

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

// ipc are the settings of the IPC namespace.
var ipc = []string{"kernel.shm*", "kernel.msg*", "kernel.sem", "fs.mqueue.*"}

// sysctls refuses a pod with kernel settings that would reach beyond it.
func sysctls(n Node, pod *v1.Pod, _ []*v1.Pod) *Refusal {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		name := podfiles.SysctlName(s.Name)
		why := ""
		switch {
		case !listed(safe, name) && !listed(n.UnsafeSysctls, name):
			why = "not allowlisted"
		case pod.Spec.HostNetwork && strings.HasPrefix(name, "net."):
			why = "not allowed with host net enabled"
		case pod.Spec.HostIPC && listed(ipc, name):
			why = "not allowed with host ipc enabled"
		}
		if why != "" {
			return &Refusal{"SysctlForbidden", fmt.Sprintf("forbidden sysctl: %q %s", name, why)}
		}
	}
	return nil
}

// listed reports whether a list of names, or of beginnings with *, has name.
func listed(list []string, name string) bool {
	return slices.ContainsFunc(list, func(entry string) bool {
		if prefix, ok := strings.CutSuffix(entry, "*"); ok {
			return strings.HasPrefix(name, prefix)
		}
		return entry == name
	})
}
