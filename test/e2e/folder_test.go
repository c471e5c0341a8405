package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFolder is what people do to a manifest folder beside writing good files
// into it.
func TestFolder(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	// fault waits until status shows these texts.
	fault := func(texts ...string) {
		t.Helper()
		n.eventually("status shows it", func() error {
			out, _ := n.try("status")
			return wants(out, texts...)
		})
	}
	healthy := func() {
		t.Helper()
		n.eventually("nothing is wrong", func() error {
			if out, err := n.try("status"); err != nil {
				return errors.New(out)
			}
			return nil
		})
	}
	n.write("a.yaml", demoPod("a", "serve", ""))
	before := containers(n.running("a-edge-1"))
	unchanged := func() {
		t.Helper()
		if got := containers(n.running("a-edge-1")); got != before {
			t.Errorf("containers changed:\n%swant\n%s", got, before)
		}
	}

	step(t, "a backup beside it is left alone", func(t *testing.T) {
		n.t = t
		for _, name := range []string{"a.yaml.bak", "a.yaml~", "a.orig"} {
			n.write(name, demoPod("a", "serve, --addr, ':9'", ""))
		}
		n.write("z.yaml", demoPod("z", "serve", ""))
		n.running("z-edge-1") // the folder has been read since
		unchanged()
	})

	step(t, "one name in two files", func(t *testing.T) {
		n.t = t
		n.write("copy.yaml", demoPod("a", "serve, --addr, ':9'", ""))
		fault("copy.yaml", "a.yaml", "default/a")
		unchanged()
		n.remove("copy.yaml")
		healthy()
	})

	step(t, "a kind that needs a cluster", func(t *testing.T) {
		n.t = t
		n.write("deploy.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {}\n")
		fault("deploy.yaml:", "Deployment", "spec.template")
		n.remove("deploy.yaml")
		healthy()
	})

	step(t, "a pod waits for what it refers to", func(t *testing.T) {
		n.t = t
		n.write("needy.yaml", demoPod("needy", "cat, /etc/late/word", `    volumeMounts:
    - {name: late, mountPath: /etc/late}
  restartPolicy: Never
  volumes:
  - name: late
    configMap: {name: late}
`))
		n.eventually("the event says what it waits for", func() error {
			return wants(n.kubectl("get", "events"), "ConfigMap default/late")
		})
		n.write("late.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: late}\ndata: {word: here}\n")
		n.eventually("it runs", func() error {
			out, err := n.tryKubectl("", "logs", "needy-edge-1")
			return errors.Join(err, wants(out, "here"))
		})
		n.remove("needy.yaml")
		n.remove("late.yaml")
		n.eventually("both go", func() error {
			if n.pod("needy-edge-1") != nil {
				return errors.New("the pod is still there")
			}
			if out := n.kubectl("get", "configmap", "late", "--ignore-not-found"); out != "" {
				return errors.New(out)
			}
			return nil
		})
	})

	step(t, "what left the folder while the node was down is pruned", func(t *testing.T) {
		n.t = t
		n.write("ns.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: lab}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: word, namespace: lab}\nstringData: {a: b}\n")
		n.eventually("applied", func() error {
			_, err := n.tryKubectl("", "get", "secret", "word", "-n", "lab")
			return err
		})
		kill(t, n.report().PID)
		n.remove("ns.yaml")
		n.remove("z.yaml")
		n.up()
		n.eventually("pruned", func() error {
			if n.pod("z-edge-1") != nil {
				return errors.New("the pod is still there")
			}
			if out := n.kubectl("get", "namespace", "lab", "--ignore-not-found"); out != "" {
				return errors.New(out)
			}
			return nil
		})
		unchanged()
	})

	step(t, "a file broken while the node was down", func(t *testing.T) {
		n.t = t
		kill(t, n.report().PID)
		n.write("a.yaml", "kind: Pod\n  broken")
		n.up()
		fault("a.yaml")
		unchanged()
		n.write("a.yaml", demoPod("a", "serve", ""))
		healthy()
		unchanged()
	})

	step(t, "the folder itself is gone for a while", func(t *testing.T) {
		n.t = t
		dir := filepath.Join(n.root, "manifests")
		if err := os.Rename(dir, dir+".away"); err != nil {
			t.Fatal(err)
		}
		fault("manifests")
		unchanged()
		if err := os.Rename(dir+".away", dir); err != nil {
			t.Fatal(err)
		}
		healthy()
		unchanged()
	})

	step(t, "moved, touched and written in another way", func(t *testing.T) {
		n.t = t
		text := demoPod("a", "serve", "")
		n.remove("a.yaml")
		n.write("b.yaml", "# moved\n---\n"+text)
		seen := func(mark string) {
			t.Helper()
			n.write("mark.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mark}\ndata: {at: "+mark+"}\n")
			n.eventually("the folder has been read since", func() error {
				out, err := n.tryKubectl("", "get", "configmap", "mark", "-o", "yaml")
				return errors.Join(err, wants(out, "at: "+mark))
			})
			unchanged()
		}
		seen("moved")
		n.write("b.yaml", strings.TrimSpace(text)) // its last line has no end
		seen("touched")
		n.write("a.yaml", text)
		n.remove("b.yaml")
		n.remove("mark.yaml")
		healthy()
		unchanged()
	})

	step(t, "an edit ends the old instance before the new one starts", func(t *testing.T) {
		n.t = t
		n.write("a.yaml", strings.Replace(demoPod("a", "serve", ""), "args: [serve]", "args: [serve, --addr, ':8081']", 1))
		n.eventually("new containers", func() error {
			pod := n.pod("a-edge-1")
			if pod == nil || containers(pod) == before || containers(pod) == "" {
				return errors.New("still the old ones")
			}
			return nil
		})
		n.running("a-edge-1")
		n.eventually("its log", func() error { return wants(n.kubectl("logs", "a-edge-1"), "8081") })
	})
	n.t = t
}
