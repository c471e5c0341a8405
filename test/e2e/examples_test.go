package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExamples runs everything in examples/ at once, and the commands that the
// files name.
func TestExamples(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	paths, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("examples: %v, %v", paths, err)
	}
	kept := filepath.Join(t.TempDir(), "ledger")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		n.write(filepath.Base(path), strings.ReplaceAll(string(text), "/srv/holdfast-example", kept))
	}
	n.eventually("every pod runs or is done", func() error {
		r := n.report()
		var wrong []error
		for _, f := range r.Faults {
			wrong = append(wrong, fmt.Errorf("%s: %s", f.Object, f.Message))
		}
		if len(r.Pods) != len(paths) { // one each
			wrong = append(wrong, fmt.Errorf("%d pods of %d files", len(r.Pods), len(paths)))
		}
		for _, p := range r.Pods {
			if p.Phase != "Succeeded" && p.Phase != "Running" {
				wrong = append(wrong, fmt.Errorf("%s is %s", p.Name, p.Phase))
			}
		}
		return errors.Join(wrong...)
	})

	n.eventually("what the pods say", func() error {
		var wrong []error
		for _, want := range []struct{ command, out string }{
			{"exec vault-edge-1 -- /demo env DATABASE_USER", "holdfast"},
			{"exec vault-edge-1 -- /demo cat /run/secrets/app/password", "change-me"},
			{"exec vault-edge-1 -- /demo ls /var/run/secrets/kubernetes.io/serviceaccount", "token"},
			{"logs prepared-edge-1", "prepared before the start"},
			{"logs prepared-edge-1 -c helper", "serving on"},
			{"logs -n chores sweep-edge-1", "swept"},
			{"get pvc ledger", "Bound"},
			{"exec shelf-edge-1 -- /demo ls /image", "demo"},
			{"exec shelf-edge-1 -- /demo cat /about/labels", "shelf"},
			{"get pod probed-edge-1", "0/1"},
		} {
			out, err := n.tryKubectl("", strings.Fields(want.command)...)
			wrong = append(wrong, err, wants(out, want.out))
		}
		return errors.Join(wrong...)
	})

	n.kubectl("exec", "probed-edge-1", "--", "/demo", "write", "/state/ready", "yes")
	n.eventually("the readiness probe", func() error { return wants(n.kubectl("get", "pod", "probed-edge-1"), "1/1") })

	n.kubectl("exec", "ledger-edge-1", "--", "/demo", "write", "/data/note", "still here")
	if text, err := os.ReadFile(filepath.Join(kept, "note")); err != nil || string(text) != "still here\n" {
		t.Errorf("the claim's folder on the machine: %q, %v", text, err)
	}
}
