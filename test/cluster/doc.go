// Package cluster tests a whole cluster on one machine: a real control plane, and
// nodes that each have a network namespace of their own, a private containerd and
// a built binary, `holdfast kubelet` or `holdfast-kubelet`, with a configuration file
// as a user writes it.
package cluster
