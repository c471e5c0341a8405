// Package docs holds tests of what users read: that links lead somewhere, that
// tests which the pages name exist, that examples are good, and that messages
// are the ones that are printed.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// pages returns the text of every page, by its path from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			out[name] = string(text)
		}
	}
	if len(out) < 10 {
		t.Fatalf("only %d pages were found", len(out))
	}
	return out
}

var link = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)

func TestLinks(t *testing.T) {
	all := pages(t)
	for name, text := range all {
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			target := match[1]
			if strings.Contains(target, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(name), target)); err != nil {
				t.Errorf("%s: link to %s: %v", name, target, err)
			}
		}
	}
	for name := range all {
		if strings.HasPrefix(name, "docs/") && !strings.Contains(all["README.md"], "("+name+")") {
			t.Errorf("README.md does not lead to %s", name)
		}
	}
}

// TestPagesBeginWithATask holds the form of a page: one title, first.
func TestPagesBeginWithATask(t *testing.T) {
	for name, text := range pages(t) {
		if !strings.HasPrefix(name, "docs/") {
			continue
		}
		title, rest := "", text
		for line := range strings.Lines(text) {
			rest = rest[len(line):]
			if strings.HasPrefix(line, "<!--") || strings.TrimSpace(line) == "" {
				continue
			}
			title = strings.TrimSpace(line)
			break
		}
		if !strings.HasPrefix(title, "# ") || len(strings.Fields(title)) < 3 {
			t.Errorf("%s begins with %q, not with a task as its title", name, title)
		}
		fenced := false
		for line := range strings.Lines(rest) {
			if strings.HasPrefix(line, "```") {
				fenced = !fenced
			}
			if !fenced && strings.HasPrefix(line, "# ") {
				t.Errorf("%s has a second title: %s", name, line)
			}
		}
	}
}

// testName is how a page names a test: `internal/kubelet/pleg TestCacheFirst`,
// with /SUBTEST behind it where one case is meant.
var testName = regexp.MustCompile("`((?:internal|cmd|test)[a-z0-9/]*) ((?:Test|Fuzz)[A-Za-z0-9]+)(/[^`]+)?`")

func TestNamedTestsExist(t *testing.T) {
	known := map[string]testsOf{}
	count := 0
	for name, text := range pages(t) {
		for _, match := range testName.FindAllStringSubmatch(text, -1) {
			count++
			dir, test, sub := match[1], match[2], strings.TrimPrefix(match[3], "/")
			if _, ok := known[dir]; !ok {
				known[dir] = readTests(t, dir)
			}
			tests := known[dir]
			if !slices.Contains(tests.functions, test) {
				t.Errorf("%s names %s %s, which does not exist", name, dir, test)
			} else if sub != "" && !slices.Contains(tests.words, sub) {
				t.Errorf("%s names %s %s/%s, and there is no such case", name, dir, test, sub)
			}
		}
	}
	if count < 100 {
		t.Errorf("only %d tests are named; is the pattern still right?", count)
	}
}

// testsOf are the tests of a package: its functions, and every text in its test
// files and every file of its test data, among which are the names of cases.
type testsOf struct{ functions, words []string }

func readTests(t *testing.T, dir string) testsOf {
	t.Helper()
	var out testsOf
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.FuncDecl:
				if node.Recv == nil {
					out.functions = append(out.functions, node.Name.Name)
				}
			case *ast.BasicLit:
				if text, err := strconv.Unquote(node.Value); err == nil && node.Kind == token.STRING {
					out.words = append(out.words, text)
				}
			}
			return true
		})
	}
	err = filepath.WalkDir(filepath.Join(root, dir, "testdata"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out.words = append(out.words, strings.TrimSuffix(d.Name(), filepath.Ext(path)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var metricName = regexp.MustCompile("`(holdfast_[a-z_]+)`")

// TestNamedMetricsExist holds that a page names no metric of ours that nobody
// registers.
func TestNamedMetricsExist(t *testing.T) {
	source := sources(t)
	for name, text := range pages(t) {
		for _, match := range metricName.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(source, `"`+match[1]+`"`) {
				t.Errorf("%s names the metric %s, which does not exist", name, match[1])
			}
		}
	}
}

// sources returns the text of all our Go files but tests.
func sources(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, dir := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			b.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// TestConfigurationIsComplete holds that docs/configuration.md names every field
// of the configuration file and every flag of "holdfast up".
func TestConfigurationIsComplete(t *testing.T) {
	all := pages(t)
	page := all["docs/configuration.md"]
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "internal/node/config.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	fields := 0
	ast.Inspect(file, func(node ast.Node) bool {
		field, ok := node.(*ast.Field)
		if !ok || field.Tag == nil {
			return true
		}
		_, tag, _ := strings.Cut(field.Tag.Value, `json:"`)
		if name, _, _ := strings.Cut(strings.TrimSuffix(tag, "\"`"), ","); name != "-" {
			fields++
			if !strings.Contains(page, "`"+name+"`") && name != "apiVersion" && name != "kind" {
				t.Errorf("docs/configuration.md does not name the field %s", name)
			}
		}
		return true
	})
	if fields < 5 {
		t.Errorf("only %d fields were found", fields)
	}
	_, up, found := strings.Cut(all["docs/cli.md"], "\n## holdfast up\n")
	if !found {
		t.Fatal("docs/cli.md has no section on holdfast up")
	}
	up, _, _ = strings.Cut(up, "\n## ")
	for _, match := range regexp.MustCompile("(?m)^\\| `.*(--[a-z-]+)").FindAllStringSubmatch(up, -1) {
		if !strings.Contains(page, "`"+match[1]+"`") {
			t.Errorf("docs/configuration.md does not name the flag %s", match[1])
		}
	}
}
