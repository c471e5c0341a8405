package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

func port(p Port) Finding {
	id := "port-" + strings.TrimSuffix(strings.TrimPrefix(p.Name, "--"), "-port")
	switch {
	case p.Owner == "":
		return ok(id, "%d is free", p.Number)
	case p.Ours:
		return ok(id, "%d is the node's", p.Number)
	}
	return Finding{id, Error, fmt.Sprintf("%d is taken by %s", p.Number, p.Owner), "the node listens there", p.Name + " with another port, or 0 for any"}
}

func forwarding(h Host) Finding {
	switch {
	case h.Endpoint != "":
		return Finding{}
	case h.Forwarding == "1":
		return ok("ip-forward", "on")
	}
	return Finding{"ip-forward", Note, "off", "pods reach other machines by it; a node turns it on, and back off when it is uninstalled", ""}
}

func iptables(h Host) Finding {
	switch {
	case h.Endpoint != "":
		return Finding{}
	case h.Iptables.Path == "":
		return Finding{"iptables", Error, "not found", "pods' addresses are translated, and their ports opened, by it", "apt-get install iptables"}
	case h.Iptables.Err != nil:
		return Finding{
			"iptables", Error, fmt.Sprintf("%s: %v", h.Iptables.Path, h.Iptables.Err),
			"pods' addresses are translated, and their ports opened, by it",
			"load its modules (modprobe ip_tables, or nf_tables), or choose the other back end: update-alternatives --config iptables",
		}
	}
	return ok("iptables", "%s", h.Iptables.Version)
}

func forwardPolicy(h Host) Finding {
	switch {
	case h.ForwardPolicy == "" || h.Endpoint != "":
		return Finding{}
	case h.ForwardPolicy == "ACCEPT":
		return ok("forward-policy", "ACCEPT")
	}
	return Finding{
		"forward-policy", Note, h.ForwardPolicy,
		"as Docker and firewalls set it; a node lets its own pods' packets through by a chain of its own", "",
	}
}

// feature judges something that the kernel has built in, or loads when it is
// wanted. Where its modules cannot be seen, as in a container, nothing is said.
func feature(h Host, id, module, why string) Finding {
	if h.Modules == "" {
		return Finding{}
	}
	if hasModule(h.Modules, module) {
		return ok(id, "the kernel has it")
	}
	return Finding{id, Error, "the kernel has no " + module, why, "modprobe " + module + ", or a kernel that has it"}
}

// hasModule reports whether a list of modules, of files or of /proc/modules,
// names one.
func hasModule(list, module string) bool {
	for line := range strings.Lines(list) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		name = strings.TrimSuffix(name, ":")
		name = name[strings.LastIndexByte(name, '/')+1:]
		name, _, _ = strings.Cut(name, ".ko")
		if strings.ReplaceAll(name, "-", "_") == module {
			return true
		}
	}
	return false
}

func bridge(h Host) Finding {
	if h.Endpoint != "" {
		return Finding{}
	}
	return feature(h, "bridge", "bridge", "pods are joined by one")
}

// names judges the name servers that pods are given.
func names(h Host) Finding {
	if len(h.Nameservers) == 0 {
		return Finding{"dns", Note, "/etc/resolv.conf names no server", "pods find nobody by name", "name one, if there is one"}
	}
	loopback := slices.ContainsFunc(h.Nameservers, func(s string) bool {
		addr, err := netip.ParseAddr(s)
		return err == nil && addr.IsLoopback()
	})
	if loopback {
		return Finding{
			"dns", Note, strings.Join(h.Nameservers, ", "),
			"a pod's loopback is its own: a node gives pods the servers that systemd-resolved asks, if it runs", "",
		}
	}
	return ok("dns", "%s", strings.Join(h.Nameservers, ", "))
}
