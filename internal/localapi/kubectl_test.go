package localapi

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// Plain kubectl, whatever version the machine has.
func testKubectl(t *testing.T, s *Server) {
	testenv.Need(t, "kubectl")
	dir := t.TempDir()
	kubeconfig, err := s.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	config := func(value string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: kubectl}\ndata: {k: " + value + "}\n"
	}
	for _, tc := range []struct {
		args, stdin, want string
	}{
		{"create namespace kubectl", "", "namespace/kubectl created"},
		{"api-resources", "", "persistentvolumeclaims"},
		{"explain pod.spec.containers", "", "List of containers"},
		{"apply -f -", config("v"), "configmap/c created"},
		{"apply -f -", config("w"), "configmap/c configured"},
		{"apply --server-side --force-conflicts -f -", config("x"), "serverside-applied"},
		{"get configmap c -n kubectl -o jsonpath={.data.k}", "", "x"},
		{"run p -n kubectl --image=holdfast.local/demo", "", "pod/p created"},
		{"wait pod/p -n kubectl --for=jsonpath={.spec.nodeName}=node1 --timeout=60s", "", "condition met"},
		{"get pods -n kubectl -o wide", "", "node1"},
		{"describe pod p -n kubectl", "", "holdfast.local/demo"},
		{"events -n kubectl", "", "Scheduled"},
		{"auth can-i create pods", "", "yes"},
		{"delete pod p -n kubectl --force --grace-period=0", "", "deleted"},
		{"delete namespace kubectl", "", "deleted"},
	} {
		cmd := exec.CommandContext(t.Context(), "kubectl", append([]string{"--kubeconfig", file, "--cache-dir", dir}, strings.Fields(tc.args)...)...)
		cmd.Stdin = strings.NewReader(tc.stdin)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), tc.want) {
			t.Fatalf("kubectl %s: %v\n%swant %q in it", tc.args, err, out, tc.want)
		}
	}
}
