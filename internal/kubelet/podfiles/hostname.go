package podfiles

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxHostname is the kernel's limit on a host name, in bytes.
const maxHostname = 64

// Hostname returns a pod's short host name and its domain; the domain is empty
// for a pod without subdomain.
func (n *Node) Hostname(pod *v1.Pod) (name, domain string, err error) {
	if o := pod.Spec.HostnameOverride; o != nil {
		if errs := validation.IsDNS1123Subdomain(*o); len(errs) > 0 {
			return "", "", fmt.Errorf("hostnameOverride %q: %s", *o, strings.Join(errs, "; "))
		}
		return *o, "", nil
	}
	name = pod.Spec.Hostname
	if name == "" {
		name = truncateLabel(pod.Name)
	} else if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
		return "", "", fmt.Errorf("hostname %q: %s", name, strings.Join(errs, "; "))
	}
	if sub := pod.Spec.Subdomain; sub != "" {
		if errs := validation.IsDNS1123Label(sub); len(errs) > 0 {
			return "", "", fmt.Errorf("subdomain %q: %s", sub, strings.Join(errs, "; "))
		}
		domain = fmt.Sprintf("%s.%s.svc.%s", sub, pod.Namespace, n.ClusterDomain)
	}
	return name, domain, nil
}

// kernelHostname returns what the sandbox's kernel is told.
func kernelHostname(pod *v1.Pod, name, domain string) (string, error) {
	if pod.Spec.SetHostnameAsFQDN == nil || !*pod.Spec.SetHostnameAsFQDN || domain == "" {
		return name, nil
	}
	fqdn := name + "." + domain
	if len(fqdn) > maxHostname {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)",
			fqdn, maxHostname, len(fqdn)) // upstream's words, for who looks for them
	}
	return fqdn, nil
}

// truncateLabel cuts a pod's name, which may be 253 long, to a DNS label.
func truncateLabel(name string) string {
	if len(name) > validation.DNS1123LabelMaxLength {
		name = strings.TrimRight(name[:validation.DNS1123LabelMaxLength], "-.")
	}
	return name
}
