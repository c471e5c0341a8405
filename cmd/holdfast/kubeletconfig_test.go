package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/kubeletconfig"
	"github.com/holdfast-dev/holdfast/internal/version"
)

// runConfig runs a command about a kubelet's configuration.
func runConfig(args ...string) (stdout, stderr string, err error) {
	flags := new(kubeletconfig.Flags)
	parent := &cobra.Command{Use: "kubelet", SilenceUsage: true, SilenceErrors: true}
	flags.AddTo(parent.PersistentFlags())
	parent.AddCommand(newKubeletConfig(flags))
	var out, errOut bytes.Buffer
	parent.SetOut(&out)
	parent.SetErr(&errOut)
	parent.SetArgs(append([]string{"config"}, args...))
	err = parent.Execute()
	return out.String(), errOut.String(), err
}

// TestKubeletConfig holds that what is printed is a configuration again, with what
// files and flags say, and that all that is wrong is told at once.
func TestKubeletConfig(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
		if err := os.WriteFile(path, []byte(head+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, bad := put("good.yaml", "maxPods: 20\nport: 1000\n"), put("bad.yaml", "cpuManagerPolicy: static\nport: 0x\n")
	worse := put("worse.yaml", "cpuManagerPolicy: static\nrunOnce: true\n")
	evictions := put("evictions.yaml", "evictionHard: {memory.available: much}\n")

	printed, stderr, err := runConfig("print", "--config", good, "--port", "2000", "--housekeeping-interval=5s")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"maxPods: 20\n", "port: 2000\n", "cgroupDriver: cgroupfs\n"} {
		if !strings.Contains(printed, want) {
			t.Errorf("got %s, want %q in it", printed, want)
		}
	}
	if want := "Warning: --housekeeping-interval has no effect"; !strings.Contains(stderr, want) {
		t.Errorf("got %q, want %q in it", stderr, want)
	}
	again := filepath.Join(dir, "again.yaml")
	if err := os.WriteFile(again, []byte(printed), 0o600); err != nil {
		t.Fatal(err)
	}
	if twice, _, err := runConfig("print", "--config", again); err != nil || twice != printed {
		t.Errorf("what was printed comes to something else: %v\n%s", err, twice)
	}
	if text, _, err := runConfig("print", "--config", good, "-o", "json"); err != nil || !strings.Contains(text, `"maxPods": 20`) {
		t.Errorf("as JSON: %v, %s", err, text)
	}
	if _, _, err := runConfig("print", "-o", "wide"); err == nil {
		t.Error("printed as a table")
	}

	if _, stderr, err := runConfig("validate", good, again); err != nil || stderr != "" {
		t.Errorf("good files: %v, %s", err, stderr)
	}
	_, stderr, err = runConfig("validate", bad, worse, good, evictions)
	if got := exitCode(err); got != exitFailed {
		t.Errorf("got exit code %d, want %d", got, exitFailed)
	}
	for _, want := range []string{bad + ":4: port: an integer is wanted", worse + ":3: cpuManagerPolicy: ", worse + ":4: runOnce: ", `evictionHard: memory.available: "much" is no quantity`} {
		if !strings.Contains(stderr, want) {
			t.Errorf("got %q, want %q in it", stderr, want)
		}
	}
}

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
