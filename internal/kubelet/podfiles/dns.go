package podfiles

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// What resolvers accept, as API validation has it.
const (
	maxServers     = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

// DNS is what a resolv.conf says.
type DNS struct {
	Servers  []string
	Searches []string
	Options  []string
}

// ParseResolvConf reads the text of a resolv.conf. Lines that it does not know
// are skipped, as resolvers do; the last search line counts, and the last of
// each option.
func ParseResolvConf(text []byte) DNS {
	var d DNS
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") || strings.HasPrefix(fields[0], ";") {
			continue
		}
		switch fields[0] {
		case "nameserver":
			d.Servers = append(d.Servers, fields[1])
		case "search":
			d.Searches = nil
			for _, s := range fields[1:] {
				// A trailing dot is the same domain; a lone dot is none.
				if s = strings.TrimSuffix(s, "."); s != "" {
					d.Searches = append(d.Searches, s)
				}
			}
		case "options":
			d.Options = mergeOptions(d.Options, fields[1:])
		}
	}
	return d
}

// mergeOptions appends options, each replacing an earlier one of its name.
func mergeOptions(have, more []string) []string {
	out := slices.Clone(have)
	for _, o := range more {
		name, _, _ := strings.Cut(o, ":")
		i := slices.IndexFunc(out, func(s string) bool { n, _, _ := strings.Cut(s, ":"); return n == name })
		if i >= 0 {
			out[i] = o
		} else {
			out = append(out, o)
		}
	}
	return out
}

// PodDNS returns a pod's resolver settings by its DNS policy and configuration.
func (n *Node) PodDNS(pod *v1.Pod) (*runtimeapi.DNSConfig, []Warning) {
	var warnings []Warning
	base := n.HostDNS
	switch policy := dnsPolicy(pod); policy {
	case v1.DNSNone:
		base = DNS{}
	case v1.DNSClusterFirst:
		if len(n.ClusterDNS) == 0 {
			// Upstream warns at every pod's start here. A node without cluster
			// DNS is the normal case for a single machine, so it is told only
			// to a pod that asked for the policy by a name that is no default.
			if pod.Spec.DNSPolicy == v1.DNSClusterFirstWithHostNet {
				warnings = append(warnings, Warning{reason.MissingClusterDNS, fmt.Sprintf("pod: %q. kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.", pod.Namespace+"/"+pod.Name, policy, v1.DNSDefault)})
			}
			break
		}
		base.Servers = n.ClusterDNS
		base.Searches = n.clusterSearches(pod.Namespace)
		base.Options = []string{"ndots:5"}
	default:
	}
	if c := pod.Spec.DNSConfig; c != nil {
		base.Servers = unique(base.Servers, c.Nameservers)
		base.Searches = unique(base.Searches, c.Searches)
		base.Options = mergeOptions(base.Options, podOptions(c.Options))
	}
	base, limited := limitDNS(base)
	return &runtimeapi.DNSConfig{Servers: base.Servers, Searches: base.Searches, Options: base.Options}, append(warnings, limited...)
}

// dnsPolicy returns the policy that applies: ClusterFirst means Default on the
// node's network, and ClusterFirstWithHostNet means ClusterFirst.
func dnsPolicy(pod *v1.Pod) v1.DNSPolicy {
	switch pod.Spec.DNSPolicy {
	case v1.DNSNone, v1.DNSDefault:
		return pod.Spec.DNSPolicy
	case v1.DNSClusterFirstWithHostNet:
		return v1.DNSClusterFirst
	default:
		if pod.Spec.HostNetwork {
			return v1.DNSDefault
		}
		return v1.DNSClusterFirst
	}
}

func (n *Node) clusterSearches(namespace string) []string {
	if n.ClusterDomain == "" {
		return n.HostDNS.Searches
	}
	cluster := []string{namespace + ".svc." + n.ClusterDomain, "svc." + n.ClusterDomain, n.ClusterDomain}
	return unique(cluster, n.HostDNS.Searches)
}

func podOptions(options []v1.PodDNSConfigOption) []string {
	out := make([]string, 0, len(options))
	for _, o := range options {
		s := o.Name
		if o.Value != nil && *o.Value != "" {
			s += ":" + *o.Value
		}
		out = append(out, s)
	}
	return out
}

// unique joins the lists without the duplicates.
func unique(lists ...[]string) []string {
	var out []string
	for _, s := range slices.Concat(lists...) {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// limitDNS cuts what resolvers would refuse and says what it cut.
func limitDNS(d DNS) (DNS, []Warning) {
	var warnings []Warning
	if len(d.Servers) > maxServers {
		d.Servers = d.Servers[:maxServers]
		warnings = append(warnings, Warning{reason.DNSConfigForming, "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: " + strings.Join(d.Servers, " ")})
	}
	kept := make([]string, 0, len(d.Searches))
	chars := -1 // no space before the first
	for _, s := range d.Searches {
		// glibc aborts on a domain that is too long.
		if len(s) > validation.DNS1123SubdomainMaxLength {
			continue
		}
		if len(kept) == maxSearches || chars+1+len(s) > maxSearchChars {
			break
		}
		kept = append(kept, s)
		chars += 1 + len(s)
	}
	if len(kept) < len(d.Searches) {
		warnings = append(warnings, Warning{reason.DNSConfigForming, "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " + strings.Join(kept, " ")})
	}
	d.Searches = kept
	return d, warnings
}
