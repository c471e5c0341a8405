package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/version"
)

// TestKubeletVersion holds the form that kubeadm reads of a program of that name, in
// a process of its own.
func TestKubeletVersion(t *testing.T) {
	if os.Getenv("KUBELET_VERSION") != "" {
		os.Exit(run(t.Context(), []string{"/usr/bin/kubelet", "--version"}))
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKubeletVersion$")
	cmd.Env = append(os.Environ(), "KUBELET_VERSION=1")
	out, err := cmd.Output()
	if got, want := string(out), "Kubernetes "+version.Kubernetes+"\n"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
