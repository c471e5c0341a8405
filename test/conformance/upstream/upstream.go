// Package upstream names what is built from this module: the Kubernetes
// project's own tests of a node, their runner and the programs of their images.
package upstream

import (
	_ "k8s.io/kubernetes/test/e2e_node"
)
