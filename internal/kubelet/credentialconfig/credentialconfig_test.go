package credentialconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// programs makes a folder of programs of these names.
func programs(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		write(t, filepath.Join(dir, name), "#!/bin/false\n")
		if err := os.Chmod(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

const head = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"

// provider is one that nothing is wrong with.
func provider(name string) string {
	return "- name: " + name + "\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  matchImages: ['*.example', 'reg.example:5000/team']\n  defaultCacheDuration: 10m\n"
}

func TestLoad(t *testing.T) {
	dir, bin := t.TempDir(), programs(t, "one", "two", "three")
	write(t, filepath.Join(dir, "b.yaml"), head+provider("two"))
	write(t, filepath.Join(dir, "a.yml"), head+provider("one")+`  args: [--fast]
  env: [{name: REGION, value: north}]
  tokenAttributes: {serviceAccountTokenAudience: reg, cacheType: Token, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [a.example/b]}
`)
	write(t, filepath.Join(dir, "c.json"), `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"CredentialProviderConfig","providers":[{"name":"three","apiVersion":"credentialprovider.kubelet.k8s.io/v1beta1","matchImages":["a"],"defaultCacheDuration":"0s"}]}`)
	write(t, filepath.Join(dir, "README"), "not read")
	got, err := Load(dir, bin)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range got.Providers {
		names = append(names, p.Name)
	}
	if diff := cmp.Diff(names, []string{"one", "two", "three"}); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
	if one := got.Providers[0]; one.Args[0] != "--fast" || one.Env[0].Value != "north" || !*one.TokenAttributes.RequireServiceAccount {
		t.Errorf("got %+v", one)
	}
	file, err := Load(filepath.Join(dir, "b.yaml"), bin)
	if err != nil || len(file.Providers) != 1 {
		t.Errorf("one file: got %v, %v", file, err)
	}
	if file.Hash == got.Hash || !strings.HasPrefix(file.Hash, "sha256:") {
		t.Errorf("hashes %s and %s", file.Hash, got.Hash)
	}
}

func TestLoadRefuses(t *testing.T) {
	token := provider("one") + "  tokenAttributes: "
	for name, test := range map[string]struct{ text, want string }{
		"another kind":       {"apiVersion: v1\nkind: Pod\n", `apiVersion is "v1" and kind is "Pod"; want "kubelet.config.k8s.io/v1" and "CredentialProviderConfig"`},
		"two documents":      {head + provider("one") + "---\n" + head + provider("one"), "more than one document"},
		"no YAML":            {"a: b: c", "mapping values"},
		"an unknown field":   {head + provider("one") + "  matchImage: a\n", `line 4: providers[0]: json: unknown field "matchImage"`},
		"another type":       {head + provider("one") + provider("two") + "  args: a\n", "providers[1]: json: cannot unmarshal string into Go struct field"},
		"a field of the top": {head + provider("one") + "more: 1\n", `unknown field "more"`},
		"none":               {head, "providers: there is none"},
		"twice":              {head + provider("one") + provider("one"), `providers[1].name: "one" is there twice, first in`},
		"a path for a name":  {head + provider("../one"), `providers[0].name: "../one": want the name of a program`},
		"no program":         {head + provider("none"), "providers[0].name: its program: stat "},
		"all is missing":     {head + "- name: one\n", `providers[0].defaultCacheDuration: it is missing`},
		"another protocol":   {head + strings.Replace(provider("one"), "io/v1", "io/v2", 1), `providers[0].apiVersion: "credentialprovider.kubelet.k8s.io/v2"`},
		"a scheme":           {head + strings.Replace(provider("one"), "*.example", "https://a.example", 1), `providers[0].matchImages[0]: "https://a.example": want it without a scheme`},
		"a broken pattern":   {head + strings.Replace(provider("one"), "*.example", `a\`, 1), `providers[0].matchImages[0]: "a\\"`},
		"a negative time":    {head + strings.Replace(provider("one"), "10m", "-1s", 1), "providers[0].defaultCacheDuration: -1s must not be negative"},
		"a wrong variable":   {head + provider("one") + "  env: [{name: A=B, value: c}]\n", `providers[0].env[0]: "A=B" is no name`},
		"half of a token":    {head + token + "{}\n", "providers[0].tokenAttributes.serviceAccountTokenAudience: it is missing"},
		"no kind of cache":   {head + token + "{cacheType: Pod}\n", `providers[0].tokenAttributes.cacheType: "Pod": want ServiceAccount or Token`},
		"keys of nobody":     {head + token + "{requireServiceAccount: false, requiredServiceAccountAnnotationKeys: [a]}\n", "there may be none where requireServiceAccount is false"},
		"a key in two lists": {head + token + "{requiredServiceAccountAnnotationKeys: [a], optionalServiceAccountAnnotationKeys: [b, a]}\n", `optionalServiceAccountAnnotationKeys[1]: "a" is there twice`},
		"a wrong key":        {head + token + "{optionalServiceAccountAnnotationKeys: ['a b']}\n", `optionalServiceAccountAnnotationKeys[0]: "a b"`},
		"an older protocol":  {head + strings.Replace(token, "io/v1", "io/v1beta1", 1) + "{cacheType: Token}\n", "providers[0].tokenAttributes: only apiVersion credentialprovider.kubelet.k8s.io/v1 knows it"},
		"an older file":      {strings.Replace(head, "io/v1", "io/v1beta1", 1) + token + "{cacheType: Token}\n", "providers[0].tokenAttributes: only a file of kubelet.config.k8s.io/v1 has it"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c.yaml")
			write(t, path, test.text)
			got, err := Load(path, programs(t, "one"))
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, %v, want %q and the file in the error", got, err, test.want)
			}
		})
	}
	if _, err := Load(t.TempDir(), programs(t)); err == nil || !strings.Contains(err.Error(), "holds no *.json") {
		t.Errorf("an empty folder: got %v", err)
	}
	bin := programs(t, "one")
	file := filepath.Join(t.TempDir(), "c.yaml")
	write(t, file, head+provider("one"))
	for dir, want := range map[string]string{filepath.Join(bin, "none"): "the folder of the programs: stat ", file: "is no folder of programs"} {
		if _, err := Load(file, dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", dir, err, want)
		}
	}
	if err := os.Chmod(bin, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file, bin); err == nil || !strings.Contains(err.Error(), "others may change what is in it") {
		t.Errorf("a folder that others may change: got %v", err)
	}
	if err := os.Chmod(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]string{0o644: "is no program", 0o777: "others may change it"} {
		if err := os.Chmod(filepath.Join(bin, "one"), mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(file, bin); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("mode %o: got %v, want %q", mode, err, want)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, test := range []struct {
		pattern, image string
		want           bool
	}{
		{"reg.example", "reg.example/a", true},
		{"reg.example", "reg.example", true},
		{"reg.example", "reg.example.org/a", false},
		{"*.example", "reg.example/a", true},
		{"*.example", "a.reg.example/a", false},
		{"*.*.example", "a.reg.example/a", true},
		{"reg.*", "reg.example/a", true},
		{"app*.example", "apple.example/a", true},
		{"reg.example:5000", "reg.example:5000/a", true},
		{"reg.example:5000", "reg.example/a", false},
		{"reg.example", "reg.example:5000/a", false},
		{"reg.example/team", "reg.example/team/a", true},
		{"reg.example/team", "reg.example/teams/a", true}, // upstream's: it begins so
		{"reg.example/team", "reg.example/a/team", false},
		{"127.0.0.1:5000", "127.0.0.1:5000/a", true},
		{"docker.io", "docker.io/library/busybox", true},
		{"a b", "a b", false},
	} {
		if got := Matches(test.pattern, test.image); got != test.want {
			t.Errorf("%s for %s: got %v, want %v", test.pattern, test.image, got, test.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(head + provider("one")))
	f.Add([]byte("- a"))
	f.Add([]byte("apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders: [null]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		providers, err := decode(data)
		if err == nil && len(providers) == 0 {
			t.Error("no providers and no error")
		}
		for i := range providers {
			_ = check("x", &providers[i])
		}
	})
}

func FuzzMatches(f *testing.F) {
	f.Add("*.example:5000/a", "reg.example:5000/a/b")
	f.Add("[", "%zz")
	f.Fuzz(func(t *testing.T, pattern, image string) {
		if Matches(pattern, image) && !Matches(pattern, image+"/more") && !strings.ContainsAny(image, "?#") {
			t.Errorf("%q is for %q and not for what is below", pattern, image)
		}
	})
}
