package podfiles

import (
	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// RestartsAll reports whether a container that ended with that code has the
// whole pod start again: the first of its rules that fits says so.
func RestartsAll(c *v1.Container, exitCode int32) bool {
	rule, ok := podutil.FindMatchingContainerRestartRule(*c, exitCode)
	return ok && rule.Action == v1.ContainerRestartRuleActionRestartAllContainers
}
