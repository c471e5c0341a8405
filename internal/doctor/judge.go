package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/localapi/pki"
)

// judges are asked in this order: what a node cannot do without comes first.
var judges = []func(Host) Finding{
	root, privileges, oomScores, programs, endpoint, network, controllers, storage, inodes, overlay,
	clock, clockService, forwarding, iptables, forwardPolicy, bridge, seccomp, appArmor, userNamespaces,
	memorySize, swap, inotify, pids, openFileLimit, names, company,
}

// Judge says of everything that was read what it means for a node. A question
// that the machine does not raise has no finding.
func Judge(h Host) []Finding {
	var list []Finding
	for _, judge := range judges {
		if f := judge(h); f.ID != "" {
			list = append(list, f)
		}
	}
	for _, p := range h.Ports {
		list = append(list, port(p))
	}
	return list
}

func ok(id, found string, args ...any) Finding {
	return Finding{ID: id, Level: OK, Found: fmt.Sprintf(found, args...)}
}

func root(h Host) Finding {
	if h.EUID == 0 {
		return ok("root", "runs as root")
	}
	return Finding{
		"root", Error, fmt.Sprintf("runs as user %d", h.EUID),
		"containers, mounts and the network are root's; some of what follows cannot be seen either", "sudo holdfast doctor",
	}
}

// needed are the capabilities without which pods do not start
// (capabilities(7)): their bits and names.
var needed = []struct {
	bit  uint
	name string
}{
	{0, "CAP_CHOWN"},
	{1, "CAP_DAC_OVERRIDE"},
	{3, "CAP_FOWNER"},
	{5, "CAP_KILL"},
	{6, "CAP_SETGID"},
	{7, "CAP_SETUID"},
	{12, "CAP_NET_ADMIN"},
	{13, "CAP_NET_RAW"},
	{18, "CAP_SYS_CHROOT"},
	{19, "CAP_SYS_PTRACE"},
	{21, "CAP_SYS_ADMIN"},
	{27, "CAP_MKNOD"},
}

func privileges(h Host) Finding {
	var missing []string
	for _, c := range needed {
		if h.Capabilities&(1<<c.bit) == 0 {
			missing = append(missing, c.name)
		}
	}
	switch {
	case h.EUID != 0:
		return Finding{} // said already
	case len(missing) == 0:
		return ok("capabilities", "has what containers need")
	}
	return Finding{
		"capabilities", Error, "lacks " + strings.Join(missing, ", "),
		"this root is not the machine's: a container or a unit has taken them away", "start it outside the container, or without CapabilityBoundingSet=",
	}
}

func oomScores(h Host) Finding {
	const capSysResource = 24
	switch {
	case h.EUID != 0:
		return Finding{}
	case h.Capabilities&(1<<capSysResource) != 0:
		return ok("oom-scores", "has CAP_SYS_RESOURCE")
	}
	return Finding{
		"oom-scores", Note, "lacks CAP_SYS_RESOURCE",
		"scores for the OOM killer cannot be lowered, so a node's own programs are as likely to be killed as a pod; the private containerd is told", "",
	}
}

func programs(h Host) Finding {
	if h.Endpoint != "" {
		return Finding{}
	}
	const remedy = `build them ("make runtime"), or set HOLDFAST_RUNTIME_DIR to their folder`
	if h.RuntimeDir == "" {
		return Finding{"runtime", Error, fmt.Sprint(h.RuntimeErr), "containerd, runc and the CNI plugins run the pods", remedy}
	}
	var wrong []string
	version := ""
	for _, p := range h.Programs {
		if p.Err != nil {
			wrong = append(wrong, fmt.Sprintf("%s (%v)", p.Name, p.Err))
		}
		if p.Name == "containerd" {
			version = p.Version
		}
	}
	if len(wrong) > 0 {
		return Finding{"runtime", Error, fmt.Sprintf("in %s: %s", h.RuntimeDir, strings.Join(wrong, "; ")), "they run the pods", remedy}
	}
	return ok("runtime", "%s: %s", h.RuntimeDir, version)
}

func endpoint(h Host) Finding {
	switch {
	case h.Endpoint == "":
		return Finding{}
	case h.Runtime.Err != nil:
		return Finding{
			"runtime", Error, fmt.Sprintf("%s: %v", h.Endpoint, h.Runtime.Err), "it runs the pods",
			"start it, or leave --container-runtime-endpoint away to use the private containerd",
		}
	case h.Runtime.API != "v1":
		return Finding{
			"runtime", Error, fmt.Sprintf("%s speaks CRI %s", h.Endpoint, h.Runtime.API), "a node speaks CRI v1",
			"upgrade it: containerd from 1.6, CRI-O from 1.23",
		}
	}
	return ok("runtime", "%s: %s %s", h.Endpoint, h.Runtime.Name, h.Runtime.Version)
}

// network is about the CNI plugins, which programs has looked for.
func network(h Host) Finding {
	if h.Endpoint == "" {
		return Finding{}
	}
	return Finding{"network", Note, "the pods' network is that runtime's own", "a node makes a bridge and rules only for its private containerd", ""}
}

// controllers a node uses, and whether pods run without.
var wanted = []struct {
	name     string
	required bool
}{{"cpu", true}, {"memory", true}, {"pids", true}, {"cpuset", false}, {"io", false}, {"hugetlb", false}}

func controllers(h Host) Finding {
	c := h.Cgroups
	if !c.Known {
		return Finding{
			"cgroups", Error, "no cgroup hierarchy is mounted", "pods are kept apart by cgroups",
			"mount -t cgroup2 cgroup2 /sys/fs/cgroup",
		}
	}
	have, mode := c.V1, "v1"
	switch {
	case c.V2Only:
		have, mode = c.V2, "v2"
	case c.V2Mounted:
		mode = "hybrid"
	}
	have = append(slices.Clone(have), alias(have)...)
	var missing, lesser []string
	for _, w := range wanted {
		switch {
		case slices.Contains(have, w.name):
		case w.required:
			missing = append(missing, w.name)
		default:
			lesser = append(lesser, w.name)
		}
	}
	found := fmt.Sprintf("cgroup %s: %s", mode, strings.Join(have, " "))
	switch {
	case len(missing) > 0:
		return Finding{
			"cgroups", Error, fmt.Sprintf("cgroup %s lacks %s", mode, strings.Join(missing, ", ")),
			"requests and limits of pods are set there",
			"boot with cgroup_enable=memory (some boards), or delegate the controllers to the container or unit that this runs in (Delegate=yes)",
		}
	case mode != "v2":
		return Finding{"cgroups", Note, found, "cgroup v1 works, and gets no new features upstream", "boot with systemd.unified_cgroup_hierarchy=1"}
	case len(lesser) > 0:
		return Finding{"cgroups", Note, found + "; lacks " + strings.Join(lesser, ", "), "settings of these kinds have no effect", ""}
	}
	return ok("cgroups", "%s", found)
}

// alias returns what version 2 calls a controller of version 1.
func alias(v1 []string) []string {
	if slices.Contains(v1, "blkio") {
		return []string{"io"}
	}
	return nil
}

func memorySize(h Host) Finding {
	const small = 256 << 20
	if h.Memory >= small {
		return ok("memory", "%d MiB", h.Memory>>20)
	}
	return Finding{"memory", Warning, fmt.Sprintf("%d MiB", h.Memory>>20), "a node with a few pods takes about 150 MiB", "add memory, or swap: a node runs with it"}
}

func swap(h Host) Finding {
	if h.Swap == 0 {
		return ok("swap", "none")
	}
	return Finding{
		"swap", Note, fmt.Sprintf("%d MiB", h.Swap>>20),
		"pods may be swapped out, so memory limits bind later than they say; upstream's kubelet refuses to start, a node of Holdfast does not", "swapoff -a",
	}
}

func clock(h Host) Finding {
	if err := pki.CheckClock(h.Now); err != nil {
		return Finding{"clock", Warning, err.Error(), "other machines refuse this one's certificates and tokens", "date -s …, or a time service"}
	}
	return ok("clock", "%s", h.Now.UTC().Format("2006-01-02 15:04:05 UTC"))
}

func clockService(h Host) Finding {
	if !h.Unsynced {
		return ok("time-service", "the kernel's clock is kept right")
	}
	return Finding{"time-service", Note, "nobody keeps the clock right", "time stamps drift; a node runs all the same", "install chrony or systemd-timesyncd where there is a network"}
}

func company(h Host) Finding {
	if len(h.Neighbours) == 0 {
		return ok("neighbours", "no other container runtime, kubelet or firewall service runs")
	}
	return Finding{
		"neighbours", Note, strings.Join(h.Neighbours, ", "),
		"a node leaves them alone; what they may share with it are ports and the policy of forwarding", "",
	}
}
