// Package critest is the contract of a container runtime, as tests: what the
// adapter in package cri promises, asked of every runtime that it is used
// with. They are the fake in package crifake, the bundled containerd and
// Debian's containerd 1.6, each of the real ones started for the test with
// folders of its own.
//
// A test of a stage may rely on the fake for everything that is tested here.
package critest
