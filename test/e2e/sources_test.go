package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/control"
)

// exits runs a command and returns what it printed. Its exit code must be code.
func (n *node) exits(code int, args ...string) string {
	n.t.Helper()
	out, err := n.try(args...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else if err != nil {
		n.t.Fatal(err)
	}
	if got != code {
		n.t.Fatalf("holdfast %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	return out
}

// source returns what the node says of one of its sources.
func (n *node) source(name string) control.Source {
	n.t.Helper()
	out, err := n.try("sources", "-o", "json")
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		n.t.Fatal(err)
	}
	var all []control.Source
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		n.t.Fatalf("sources -o json: %v\n%s", err, out)
	}
	i := slices.IndexFunc(all, func(s control.Source) bool { return s.Name == name })
	if i < 0 {
		n.t.Fatalf("no source %q in:\n%s", name, out)
	}
	return all[i]
}

// TestSources asks a node where its pods come from, what an edit would do, and
// whether manifests are good.
func TestSources(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	dir := filepath.Join(n.root, "manifests")
	n.write("a.yaml", demoPod("a", "serve", ""))
	n.write("word.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: word}\nstringData: {word: hidden}\n")
	before := containers(n.running("a-edge-1"))

	step(t, "all is good", func(t *testing.T) {
		n.t = t
		n.eventually("both sources are good", func() error {
			out, err := n.try("sources")
			return errors.Join(err, wants(out, "Nothing is wrong.", "Pod default/a", "a.yaml:1", "Secret default/word", dir, "https://127.0.0.1:"))
		})
		n.exits(0, "diff")
		if err := wants(n.exits(0, "check", "--node-name", n.name, dir), "2 documents in 2 files are good"); err != nil {
			t.Error(err)
		}
		if s := n.source("api"); s.State != control.SourceGood || s.LastGood.IsZero() {
			t.Errorf("api: %+v", s)
		}
	})

	step(t, "what an edit would do is what it does", func(t *testing.T) {
		n.t = t
		edit := filepath.Join(t.TempDir(), "a.yaml")
		text := strings.Replace(demoPod("a", "serve", ""), "args: [serve]", "args: [serve, --addr, ':8081']", 1)
		if err := os.WriteFile(edit, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := wants(n.exits(1, "diff", edit), "UPDATE", "Pod default/a", "the pod is recreated", "spec.containers[0].args[1]", `":8081"`); err != nil {
			t.Error(err)
		}
		if got := containers(n.running("a-edge-1")); got != before {
			t.Errorf("diff changed the pod: %s", got)
		}
		n.write("a.yaml", text)
		n.eventually("the pod is another one", func() error {
			if now := containers(n.running("a-edge-1")); now == before {
				return errors.New("the same containers")
			}
			return nil
		})
		before = containers(n.running("a-edge-1"))
		n.exits(0, "diff")
	})

	step(t, "one name from two sources", func(t *testing.T) {
		n.t = t
		n.kubectlIn(demoPod("b-edge-1", "serve", ""), "apply", "-f", "-")
		n.running("b-edge-1")
		same := filepath.Join(t.TempDir(), "b.yaml")
		if err := os.WriteFile(same, []byte(demoPod("b", "serve", "")), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := wants(n.exits(1, "diff", same), "ADD", "Pod default/b", "the API does not show it"); err != nil {
			t.Error(err)
		}
		n.write("b.yaml", demoPod("b", "serve", ""))
		n.eventually("the source says so", func() error {
			if s := n.source("api"); len(s.Faults) != 1 || wants(s.Faults[0].Message, "b-edge-1", "b.yaml:1") != nil {
				return fmt.Errorf("got %+v", s)
			}
			return nil
		})
		n.remove("b.yaml")
		n.kubectl("delete", "pod", "b-edge-1")
		n.eventually("all is as it was", func() error {
			if s := n.source("file"); len(s.Objects) != 2 {
				return fmt.Errorf("got %+v", s)
			}
			out, err := n.try("sources")
			return errors.Join(err, wants(out, "Nothing is wrong."))
		})
	})

	step(t, "a broken file, a duplicate, and one that is ignored", func(t *testing.T) {
		n.t = t
		n.write("a.yaml", strings.Replace(demoPod("a", "serve", ""), "args:", "argz:", 1))
		n.write("copy.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: word}\nstringData: {word: copied}\n")
		n.write("kind.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: k}\nspec:\n  resourceClaims: [{name: gpu, resourceClaimName: gpu}]\n  containers:\n  - {name: c, image: holdfast.local/demo:latest}\n")
		n.write("a.yaml.bak", "")
		n.eventually("sources shows them", func() error {
			out := n.exits(4, "sources")
			return wants(out, "kept: its document is not good now", "a.yaml:", "argz: unknown field", `did you mean "args"?`, "UnknownField, since",
				"copy.yaml:", "word.yaml:1 has it too", "a.yaml.bak: its name is not that of a manifest", "spec.resourceClaims: this version does not support it")
		})
		// The check and the node say the same.
		out := n.exits(1, "check", "--node-name", n.name, "-o", "json", dir)
		var checked control.Check
		if err := json.Unmarshal([]byte(out), &checked); err != nil {
			t.Fatal(err)
		}
		lines := func(faults []control.Fault) []string {
			var all []string
			for _, f := range faults {
				all = append(all, fmt.Sprintf("%s:%d: %s: %s: %s; %s", strings.TrimPrefix(f.File, dir+"/"), f.Line, f.Object, f.Field, f.Message, f.Hint))
			}
			slices.Sort(all)
			return all
		}
		shown := n.source("file").Faults
		for i := range checked.Faults { // of a copy; which of two counts, only history says
			checked.Faults[i].Message = strings.ReplaceAll(checked.Faults[i].Message, dir+"/", "")
		}
		if !slices.ContainsFunc(checked.Faults, func(f control.Fault) bool { return f.Reason == "Duplicate" }) {
			t.Errorf("check found no duplicate: %s", out)
		}
		notCopy := func(f control.Fault) bool { return f.Reason == "Duplicate" }
		if diff := cmp.Diff(lines(slices.DeleteFunc(checked.Faults, notCopy)), lines(slices.DeleteFunc(shown, notCopy))); diff != "" {
			t.Errorf("check (-), node (+):\n%s", diff)
		}
		out = n.exits(1, "diff")
		if err := wants(out, "KEEP", "Pod default/a", "Not taken:", "copy.yaml:", "argz", "1 object unchanged"); err != nil {
			t.Error(err)
		}
		if strings.Contains(out, "hidden") {
			t.Errorf("a secret is shown:\n%s", out)
		}
		if got := containers(n.running("a-edge-1")); got != before {
			t.Errorf("containers changed:\n%swant\n%s", got, before)
		}
	})

	step(t, "the folder is away", func(t *testing.T) {
		n.t = t
		if err := os.Rename(dir, dir+".away"); err != nil {
			t.Fatal(err)
		}
		n.eventually("it is failing", func() error {
			s := n.source("file")
			if s.State != control.SourceFailing || len(s.Objects) != 2 || s.LastGood.IsZero() || s.Since.IsZero() {
				return fmt.Errorf("got %+v", s)
			}
			return nil
		})
		if err := wants(n.exits(4, "sources"), "Source file is failing: the manifest folder", "what it last said stays in force"); err != nil {
			t.Error(err)
		}
		kill(t, n.report().PID)
		n.exits(3, "sources")
		n.up()
		if s := n.source("file"); s.State != control.SourceRestored || len(s.Objects) != 2 {
			t.Errorf("after a restart: %+v", s)
		}
		if err := os.Rename(dir+".away", dir); err != nil {
			t.Fatal(err)
		}
		n.remove("copy.yaml")
		n.remove("kind.yaml")
		n.eventually("it is good", func() error {
			if s := n.source("file"); s.State != control.SourceGood || len(s.Faults) != 1 {
				return fmt.Errorf("got %+v", s)
			}
			return nil
		})
	})

	step(t, "of a node that does not run", func(t *testing.T) {
		n.t = t
		kill(t, n.report().PID)
		if err := wants(n.exits(3, "sources"), "restored", "no process runs this node", "Pod default/a", "Secret default/word"); err != nil {
			t.Error(err)
		}
		if err := wants(n.exits(1, "diff"), "KEEP", "argz", "node edge-1 is not running"); err != nil {
			t.Error(err)
		}
		n.exits(2, "diff", filepath.Join(dir, "none.yaml"))
	})
}
