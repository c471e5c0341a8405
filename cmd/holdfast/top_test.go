package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/figures"
)

// TestTopWatch holds that it looks once an interval, that a look that fails later is
// shown and tried again, and that one that fails first ends it.
func TestTopWatch(t *testing.T) {
	watch := func(f topFlags, looks ...error) (stdout, stderr string, took time.Duration, err error) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var out, errs bytes.Buffer
			cmd := &cobra.Command{}
			cmd.SetContext(ctx)
			cmd.SetOut(&out)
			cmd.SetErr(&errs)
			began, n := time.Now(), 0
			err = f.again(cmd, func(w io.Writer) error {
				n++
				if n == len(looks) {
					cancel()
				}
				if looks[n-1] == nil {
					fmt.Fprintf(w, "page %d\n", n)
				}
				return looks[n-1]
			})
			stdout, stderr, took = out.String(), errs.String(), time.Since(began)
		})
		return stdout, stderr, took, err
	}
	broken := errors.New("no answer")
	stdout, stderr, took, err := watch(topFlags{interval: time.Minute}, nil, broken, nil)
	if diff := cmp.Diff(stdout, "page 1\n\n\npage 3\n"); diff != "" || err != nil || stderr != "Error: no answer\n" || took != 2*time.Minute {
		t.Errorf("%v after %v, said %q (-got +want):\n%s", err, took, stderr, diff)
	}
	if stdout, _, _, _ := watch(topFlags{interval: time.Minute, format: cli.YAML}, nil, nil); stdout != "page 1\n---\npage 2\n" {
		t.Errorf("YAML: %q, want documents", stdout)
	}
	if stdout, _, _, _ := watch(topFlags{interval: time.Minute, format: cli.JSON}, nil, nil); stdout != "page 1\npage 2\n" {
		t.Errorf("JSON: %q, want values one after the other", stdout)
	}
	if stdout, _, took, err := watch(topFlags{interval: time.Minute}, broken, nil); !errors.Is(err, broken) || stdout != "" || took != 0 {
		t.Errorf("the first look fails: %v after %v, %q", err, took, stdout)
	}
}

// TestTopRefuses holds what is refused before anything is asked.
func TestTopRefuses(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	for args, want := range map[string]string{
		"top pods --sort-by used":           `--sort-by "used": want one of name, cpu, memory, storage`,
		"top volumes --watch --interval 0s": "--interval 0s: it must be more than nothing",
		"top pods -n web -A":                "[namespace all-namespaces]",
		"top nodes a b":                     "at most 1 arg",
		"top disks":                         `"disks" is no command of top`,
		"top nodes":                         "no Holdfast instance here",
	} {
		cmd := newCommand()
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(append([]string{"--root-dir", t.TempDir()}, strings.Fields(args)...))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// TestTopKubeconfig holds that a kubeconfig without a cluster is named, and where it is
// named from.
func TestTopKubeconfig(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "config")
	empty := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ variable, flag, want string }{
		"the variable names no file":       {missing, "", "no cluster in " + missing + ", which KUBECONFIG names"},
		"the variable names an empty file": {empty, "", "no cluster in " + empty + ", which KUBECONFIG names"},
		"the flag names an empty file":     {"", empty, "no cluster in " + empty},
		"the flag names no file":           {"", missing, missing + ": no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", test.variable)
			cmd := newCommand()
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			cmd.SetArgs([]string{"top", "pods", "--kubeconfig", test.flag})
			if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestWhyNone(t *testing.T) {
	for name, test := range map[string]struct {
		scope figures.Scope
		want  string
	}{
		"all":           {figures.Scope{}, ""},
		"one namespace": {figures.Scope{Namespace: "web"}, "Only namespace web was looked at: -A shows all.\n"},
		"one pod":       {figures.Scope{Namespace: "web", Pod: "db-0"}, "If the pod runs, figures of it come within ten seconds.\n"},
	} {
		if got := whyNone(test.scope); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
