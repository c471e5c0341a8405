package kubeletcommand

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runConfig runs a command about a kubelet's configuration.
func runConfig(args ...string) (stdout, stderr string, err error) {
	cmd := New("kubelet")
	var out, errOut bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errOut)
	cmd.SetArgs(append([]string{"config"}, args...))
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err = cmd.Execute()
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

	old := put("old.yaml", "tlsMinVersion: VersionTLS11\n")
	if _, stderr, err := runConfig("validate", old); err != nil || !strings.Contains(stderr, "Warning: tlsMinVersion VersionTLS11 allows a version that is not secure") {
		t.Errorf("an old version of TLS: %v, %s", err, stderr)
	}
	if _, stderr, err := runConfig("validate", good, again); err != nil || stderr != "" {
		t.Errorf("good files: %v, %s", err, stderr)
	}
	_, stderr, err = runConfig("validate", bad, worse, good, evictions)
	if !errors.Is(err, ErrSaid) {
		t.Errorf("got %v, want %v", err, ErrSaid)
	}
	for _, want := range []string{bad + ":4: port: an integer is wanted", worse + ":3: cpuManagerPolicy: ", worse + ":4: runOnce: ", `evictionHard: memory.available: "much" is no quantity`} {
		if !strings.Contains(stderr, want) {
			t.Errorf("got %q, want %q in it", stderr, want)
		}
	}
}
