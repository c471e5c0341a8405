package podfiles

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// The first lines of hosts files: programs and the conformance tests look for
// them, so they are the upstream kubelet's.
const (
	hostsHeader     = "# Kubernetes-managed hosts file.\n"
	hostsHeaderNode = "# Kubernetes-managed hosts file (host network).\n"
	hostsAliases    = "\n# Entries added by HostAliases.\n"
)

var hostsLocal = []string{
	"127.0.0.1\tlocalhost",
	"::1\tlocalhost ip6-localhost ip6-loopback",
	"fe00::0\tip6-localnet",
	"fe00::0\tip6-mcastprefix",
	"fe00::1\tip6-allnodes",
	"fe00::2\tip6-allrouters",
}

// Hosts returns the hosts file of a pod with a network of its own. domain may
// be empty.
func Hosts(ips []string, hostname, domain string, aliases []v1.HostAlias) []byte {
	var b bytes.Buffer
	b.WriteString(hostsHeader)
	for _, line := range hostsLocal {
		b.WriteString(line + "\n")
	}
	names := hostname
	if domain != "" {
		names = hostname + "." + domain + "\t" + hostname
	}
	for _, ip := range ips {
		fmt.Fprintf(&b, "%s\t%s\n", ip, names)
	}
	writeAliases(&b, aliases)
	return b.Bytes()
}

// NodeHosts returns the hosts file of a pod on the node's network: the node's
// own with the pod's aliases.
func NodeHosts(node []byte, aliases []v1.HostAlias) []byte {
	var b bytes.Buffer
	b.WriteString(hostsHeaderNode)
	b.Write(node)
	writeAliases(&b, aliases)
	return b.Bytes()
}

func writeAliases(b *bytes.Buffer, aliases []v1.HostAlias) {
	if len(aliases) == 0 {
		return
	}
	b.WriteString(hostsAliases)
	for _, a := range aliases {
		fmt.Fprintf(b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
	}
}

// WantsHosts reports whether a container gets the managed hosts file: the pod
// has an address or is on the node's network, and the container mounts nothing
// of its own there.
func WantsHosts(pod *v1.Pod, c *v1.Container, ips []string) bool {
	if len(ips) == 0 && !pod.Spec.HostNetwork {
		return false
	}
	return !slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.MountPath == "/etc/hosts" })
}
