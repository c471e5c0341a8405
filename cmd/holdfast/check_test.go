package main

import (
	"os"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

const goodPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: c, image: i}\n"

// invoke runs a command line and returns what it printed and its exit code.
func invoke(t *testing.T, stdin string, args ...string) (stdout string, code int, err error) {
	t.Helper()
	cmd := newCommand()
	var out strings.Builder
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(t.Output())
	cmd.SetIn(strings.NewReader(stdin))
	err = cmd.ExecuteContext(t.Context())
	return out.String(), exitCode(err), err
}

func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		stdin string
		args  []string
		want  string
		code  int
	}{
		"good":                {args: []string{"good.yaml"}, want: "1 document in 1 file is good\n"},
		"a folder":            {args: []string{"."}, code: 1, want: "bad.yaml:4: Pod default/bad: spec.containerz: unknown field; did you mean \"containers\"?\nnote.txt: ignored: its name is not that of a manifest: those end in .yaml, .yml or .json\n1 document in 2 files is good, 1 fault\n"},
		"standard input":      {stdin: goodPod + "---\n" + goodPod, args: []string{"-"}, code: 1, want: "-:10: Pod default/web: metadata.name: duplicate Pod name: -:1 has it too, and that one is in force; rename or delete one of the two\n1 document in 1 file is good, 1 fault\n"},
		"nothing on it":       {args: []string{"-"}, code: 1, want: "-:1: the file is empty; delete the file to remove what it held\n0 documents in 1 file are good, 1 fault\n"},
		"both":                {stdin: goodPod, args: []string{"-", "good.yaml"}, code: 1, want: "good.yaml:3: Pod default/web: metadata.name: duplicate Pod name: -:1 has it too, and that one is in force; rename or delete one of the two\n1 document in 2 files is good, 1 fault\n"},
		"a name for no node":  {args: []string{"good.yaml", "--node-name", "A_B"}, code: 2},
		"no such file":        {args: []string{"none.yaml"}, code: 2},
		"nothing given":       {args: []string{}, code: 2},
		"no such flag":        {args: []string{"--frobnicate"}, code: 2},
		"no such format":      {args: []string{"-o", "xml", "good.yaml"}, code: 2},
		"a file that is none": {args: []string{"note.txt"}, code: 1, want: "note.txt: a manifest folder ignores a file of this name; let its name end in .yaml, .yml or .json, and not begin with a dot\n0 documents in 1 file are good, 1 fault\n"},
		"as data": {args: []string{"good.yaml", "-o", "json"}, want: `{
  "documents": 1,
  "files": 1,
  "faults": [],
  "ignored": []
}
`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			for file, text := range map[string]string{
				"good.yaml": goodPod, "note.txt": "a note",
				"bad.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containerz: []}\n",
			} {
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, code, err := invoke(t, test.stdin, append([]string{"check"}, test.args...)...)
			if code != test.code {
				t.Errorf("exit code %d (%v), want %d", code, err, test.code)
			}
			if diff := gocmp.Diff(got, test.want); diff != "" {
				t.Errorf("got (-), want (+):\n%s", diff)
			}
		})
	}
}
