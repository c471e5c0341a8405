// Package node wires one whole node, `holdfast up`: the private container
// runtime, the embedded API and the kubelet, started in that order and stopped
// in reverse.
//
// A node that stops leaves its pods and its containerd running and adopts them
// at the next start; only Down stops pods.
package node
