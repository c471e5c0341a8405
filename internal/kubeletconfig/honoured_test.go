package kubeletconfig

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/kubelet/config/v1beta1"
)

// TestHonouredFieldsAreRead holds that somebody reads each field which has a rule
// that it is honoured, and each flag without a field: its name, behind that of the
// field which it is in, is selected in the packages that make a node of a
// configuration.
func TestHonouredFieldsAreRead(t *testing.T) {
	read := map[string]bool{}
	for _, dir := range []string{"clusternode", "kubelet", "kubelethost", "kubeletcommand"} {
		selected(t, filepath.Join("..", dir), read)
	}
	for _, r := range rules {
		switch {
		case r.instead != "":
			continue
		case r.field == "featureGates" || r.field == "mergeDefaultEvictionSettings":
			continue // Load does what they say
		}
		of, name := reflect.TypeFor[v1beta1.KubeletConfiguration](), ""
		for step := range strings.SplitSeq(r.field, ".") {
			if name != "" {
				name += "."
			}
			name += goName(of, step)
			of, _ = fieldType(of, step)
		}
		if steps := strings.Split(name, "."); !read[strings.Join(steps[max(0, len(steps)-2):], ".")] {
			t.Errorf("nobody reads %s (%s): have it do something, or say in rules what to do instead", r.field, name)
		}
	}
	for f := range reflect.TypeFor[Flags]().Fields() {
		if f.IsExported() && f.Name != "ConfigFile" && f.Name != "ConfigDir" && !read[f.Name] {
			t.Errorf("nobody reads Flags.%s: have it do something, or put the flag into unusedFlags", f.Name)
		}
	}
}

// goName returns the name in Go of a struct's field by its name in JSON.
func goName(of reflect.Type, name string) string {
	for f := range of.Fields() {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
			return f.Name
		}
	}
	return name
}

// selected collects the names that are selected in the Go files of a folder and
// those below it, but in tests: as NAME, and as BEFORE.NAME.
func selected(t *testing.T, dir string, names map[string]bool) {
	t.Helper()
	files := token.NewFileSet()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				names[s.Sel.Name] = true
				if before, ok := s.X.(*ast.SelectorExpr); ok {
					names[before.Sel.Name+"."+s.Sel.Name] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
