// Package nodelabels says which labels a node agent gives its Node object.
//
// Everything here is a pure function; any goroutine may call it.
package nodelabels

import (
	"errors"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeletapis "k8s.io/kubelet/pkg/apis"
)

// Check returns what is wrong with labels that somebody wants the node to register
// with (--node-labels), or nil. In the domains kubernetes.io and k8s.io a kubelet may
// set those alone that the admission plugin NodeRestriction lets it set.
func Check(labels map[string]string) error {
	var unknown []string
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if isKubernetes(key) && !kubeletapis.IsKubeletLabel(key) {
			unknown = append(unknown, key)
		}
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("invalid node labels: '%s' - %s", key, strings.Join(wrong, ", ")))
		}
		if wrong := validation.IsValidLabelValue(labels[key]); len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("invalid node labels: '%s' - %s", labels[key], strings.Join(wrong, ", ")))
		}
	}
	if len(unknown) > 0 {
		errs = append(errs, fmt.Errorf("unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: %v\n"+
			"--node-labels in the 'kubernetes.io' namespace must begin with an allowed prefix (%s) or be in the specifically allowed set (%s)",
			unknown, strings.Join(kubeletapis.KubeletLabelNamespaces(), ", "), strings.Join(kubeletapis.KubeletLabels(), ", ")))
	}
	return errors.Join(errs...)
}

// isKubernetes reports whether a key is in one of the domains of Kubernetes.
func isKubernetes(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return false
	}
	for _, own := range []string{"kubernetes.io", "k8s.io"} {
		if domain == own || strings.HasSuffix(domain, "."+own) {
			return true
		}
	}
	return false
}

// New returns the labels of a node that is created: those that every node has, and
// what more is wanted, which goes before.
func New(hostname string, more map[string]string) map[string]string {
	labels := Platform()
	labels[v1.LabelHostname] = hostname
	labels[kubeletapis.LabelOS], labels[kubeletapis.LabelArch] = goruntime.GOOS, goruntime.GOARCH
	maps.Copy(labels, more)
	return labels
}

// Platform returns the labels that are put right whenever they are not what the
// machine is.
func Platform() map[string]string {
	return map[string]string{v1.LabelOSStable: goruntime.GOOS, v1.LabelArchStable: goruntime.GOARCH}
}

// reconciled are the labels that a node which exists is given, too, as upstream's
// kubelet does: all others are there only for a node that it creates, so that what
// an administrator changed since stays.
var reconciled = []string{
	v1.LabelHostname,
	v1.LabelTopologyZone, v1.LabelTopologyRegion,
	v1.LabelFailureDomainBetaZone, v1.LabelFailureDomainBetaRegion,
	v1.LabelInstanceTypeStable, v1.LabelInstanceType,
	v1.LabelOSStable, v1.LabelArchStable,
	kubeletapis.LabelOS, kubeletapis.LabelArch,
}

// Reconciled returns those of a new node's labels that one which exists is given.
func Reconciled(labels map[string]string) map[string]string {
	all := map[string]string{}
	for _, key := range reconciled {
		if value := labels[key]; value != "" {
			all[key] = value
		}
	}
	return all
}
