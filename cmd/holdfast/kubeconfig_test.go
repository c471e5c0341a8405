package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/holdfast-dev/holdfast/internal/control"
)

func TestReach(t *testing.T) {
	certificates := []control.Certificate{
		{Name: "ca", Names: []string{"unknown.example.com"}},
		{Name: "apiserver", Names: []string{"edge-1", "192.0.2.1", "2001:db8::1", "*.example.com"}},
	}
	outside := []string{"192.0.2.1:6443", "10.0.0.1:6443"}
	for name, test := range map[string]struct {
		server   string
		outside  []string
		want     string
		wantName string
		wantNote string
	}{
		"the first one":       {server: "auto", outside: outside, want: "https://192.0.2.1:6443"},
		"none":                {server: "auto", want: "https://127.0.0.1:6443", wantNote: "on this machine alone"},
		"an address":          {server: "192.0.2.1", outside: outside, want: "https://192.0.2.1:6443"},
		"with a port":         {server: "192.0.2.1:8443", outside: outside, want: "https://192.0.2.1:8443"},
		"IPv6":                {server: "2001:db8::1", outside: outside, want: "https://[2001:db8::1]:6443"},
		"IPv6 with a port":    {server: "[2001:db8::1]:8443", outside: outside, want: "https://[2001:db8::1]:8443"},
		"a URL":               {server: "https://edge.example.com/", outside: outside, want: "https://edge.example.com:6443"},
		"not in certificate":  {server: "unknown.example.org", outside: outside, want: "https://unknown.example.org:6443", wantName: "edge-1", wantNote: "does not name unknown.example.org"},
		"not one label alone": {server: "a.b.example.com", outside: outside, want: "https://a.b.example.com:6443", wantName: "edge-1", wantNote: "--api-name"},
	} {
		t.Run(name, func(t *testing.T) {
			var notes bytes.Buffer
			report := &control.Report{Node: "edge-1", API: "https://127.0.0.1:6443", APIOutside: test.outside, Certificates: certificates}
			got, err := reach(test.server, report, &notes)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, &clientcmdapi.Cluster{Server: test.want, TLSServerName: test.wantName}); diff != "" {
				t.Error(diff)
			}
			if (test.wantNote == "") != (notes.Len() == 0) || !strings.Contains(notes.String(), test.wantNote) {
				t.Errorf("notes %q, want %q", notes.String(), test.wantNote)
			}
		})
	}
	for _, bad := range []string{"", "https://", "a/b", "root@host"} {
		if _, err := reach(bad, &control.Report{API: "https://127.0.0.1:6443"}, &bytes.Buffer{}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// Flags that would have no effect are refused.
func TestKubeconfigFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--role edit":                       "--role has no meaning without --user",
		"--namespace web":                   "--namespace has no meaning without --user",
		"--expires 1h":                      "--expires has no meaning without --user or --service-account",
		"--user a --service-account b/c":    "none of the others can be",
		"--list --revoke x":                 "none of the others can be",
		"--list --file x":                   "--file has no meaning with --list",
		"--user a -o json":                  "--output has no meaning without --list",
		"--revoke a --server 192.0.2.1":     "--server has no meaning with --list or --revoke",
		"--user=":                           "--user is empty",
		"--service-account a/b --role view": "--role has no meaning without --user",
	} {
		t.Run(args, func(t *testing.T) {
			in := t.TempDir()
			if err := writeInstance(in); err != nil {
				t.Fatal(err)
			}
			cmd := newKubeconfig(&global{rootDir: in})
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetArgs(strings.Fields(args))
			err := cmd.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

// writeInstance makes a root folder that a command takes for a node's.
func writeInstance(root string) error {
	return os.WriteFile(filepath.Join(root, "instance.json"), []byte(`{"version": 1, "id": "abcdef", "subnet": "192.0.2.0/24"}`), 0o644)
}
