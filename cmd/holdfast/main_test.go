package main

import (
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/instance"
)

func TestCommandLineErrors(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"a command that is near":     {[]string{"stauts"}, `"stauts" is no command of holdfast: did you mean "status"? (see "holdfast --help")`},
		"no command at all":          {[]string{"frobnicate"}, `"frobnicate" is no command of holdfast (see "holdfast --help")`},
		"a wrong format":             {[]string{"status", "-o", "xml"}, "json, yaml or wide"},
		"no image":                   {[]string{"export-image"}, "name one image, pause or demo"},
		"no folder for an image":     {[]string{"export-image", "pause", "/nonexistent/pause.tar"}, "write /nonexistent/pause.tar: no such file"},
		"no instance":                {[]string{"--root-dir", "/nonexistent", "status"}, instance.ErrNone.Error()},
		"a variable that is not set": {[]string{"uninstall", "--yes", "--root-dir", ""}, "--root-dir is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := newCommand()
			cmd.SetArgs(test.args)
			err := cmd.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestShellWord(t *testing.T) {
	for in, want := range map[string]string{
		"/srv/node":  "/srv/node",
		"/srv/my $x": `'/srv/my $x'`,
		"/srv/it's":  `'/srv/it'\''s'`,
		"":           "''",
	} {
		if got := shellWord(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}
