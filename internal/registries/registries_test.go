package registries

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// put writes a file and returns its path.
func put(t *testing.T, dir, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	err := os.WriteFile(path, []byte(content), 0o600)
	if err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func certificate(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	ca := put(t, dir, "ca.pem", certificate(t), 0o644)
	text := put(t, dir, "text", "hello", 0o600)
	open := put(t, dir, "open", "secret", 0o644)
	empty := put(t, dir, "empty", "\n", 0o600)
	docker := func(name, content string) Config {
		return Config{DockerConfigFile: put(t, dir, name, content, 0o600)}
	}
	mirror := func(registry string, e Endpoint) Config {
		return Config{Mirrors: []Mirror{{Registry: registry, Endpoints: []Endpoint{e}}}}
	}
	one := func(e Endpoint) Config { return mirror("docker.io", e) }
	const good = "https://mirror.example:5000"
	for name, test := range map[string]struct {
		config Config
		want   string // empty: good
	}{
		"nothing":              {},
		"all of it":            {config: Config{Mirrors: []Mirror{{"*", []Endpoint{{URL: good, CAFile: ca, Capabilities: []string{"pull"}}, {URL: "http://10.0.0.1:5000"}}}}, Credentials: []Credential{{"*.example/team", "ann", text}}, Proxy: Proxy{HTTPProxy: "http://u:p@proxy:3128"}}},
		"registry with path":   {config: mirror("reg.example/app", Endpoint{URL: good}), want: `images.mirrors[0].registry: "reg.example/app" is no host`},
		"registry is a URL":    {config: mirror("https://reg.example", Endpoint{URL: good}), want: "images.mirrors[0].registry"},
		"no registry":          {config: mirror("", Endpoint{URL: good}), want: "images.mirrors[0].registry: it is empty"},
		"another name of hub":  {config: mirror("index.docker.io", Endpoint{URL: good}), want: "write docker.io"},
		"registry twice":       {config: Config{Mirrors: []Mirror{{"a", []Endpoint{{URL: good}}}, {"a", []Endpoint{{URL: good}}}}}, want: `images.mirrors[1].registry: "a" is there twice`},
		"no endpoint":          {config: Config{Mirrors: []Mirror{{Registry: "a"}}}, want: "images.mirrors[0].endpoints: there is none"},
		"no URL":               {config: one(Endpoint{}), want: `images.mirrors[0].endpoints[0].url: "": want https://`},
		"no scheme":            {config: one(Endpoint{URL: "mirror.example"}), want: "images.mirrors[0].endpoints[0].url"},
		"another scheme":       {config: one(Endpoint{URL: "ftp://mirror.example"}), want: "want https://"},
		"no URL at all":        {config: one(Endpoint{URL: "https://%zz"}), want: "images.mirrors[0].endpoints[0].url"},
		"user in URL":          {config: one(Endpoint{URL: "https://ann:secret@mirror.example"}), want: "credentials go under images.credentials"},
		"capability":           {config: one(Endpoint{URL: good, Capabilities: []string{"push"}}), want: `endpoints[0].capabilities: "push"`},
		"path that is none":    {config: one(Endpoint{URL: good, OverridePath: true}), want: "endpoints[0].overridePath"},
		"CA is missing":        {config: one(Endpoint{URL: good, CAFile: dir + "/none"}), want: "endpoints[0].caFile: open " + dir + "/none: no such file"},
		"CA is text":           {config: one(Endpoint{URL: good, CAFile: text}), want: "holds no certificate in PEM"},
		"CA for http":          {config: one(Endpoint{URL: "http://mirror.example", CAFile: ca}), want: "endpoints[0].caFile: has no meaning"},
		"skip for http":        {config: one(Endpoint{URL: "http://mirror.example", InsecureSkipVerify: true}), want: "endpoints[0].insecureSkipVerify: has no meaning"},
		"certificate alone":    {config: one(Endpoint{URL: good, ClientCertFile: ca}), want: "endpoints[0].clientKeyFile: it is missing"},
		"key alone":            {config: one(Endpoint{URL: good, ClientKeyFile: ca}), want: "endpoints[0].clientCertFile: it is missing"},
		"no pair":              {config: one(Endpoint{URL: good, ClientCertFile: ca, ClientKeyFile: text}), want: "endpoints[0].clientCertFile: "},
		"open password":        {config: Config{Credentials: []Credential{{"a", "ann", open}}}, want: "images.credentials[0].passwordFile: " + open + " has mode 0644, and others may read it: chmod 600"},
		"empty password":       {config: Config{Credentials: []Credential{{"a", "ann", empty}}}, want: "is empty"},
		"no password":          {config: Config{Credentials: []Credential{{"a", "ann", ""}}}, want: "images.credentials[0].passwordFile: it is missing"},
		"password is a folder": {config: Config{Credentials: []Credential{{"a", "ann", dir}}}, want: "is not a regular file"},
		"no name":              {config: Config{Credentials: []Credential{{"a", "", text}}}, want: "images.credentials[0].username"},
		"for no registry":      {config: Config{Credentials: []Credential{{"", "ann", text}}}, want: "images.credentials[0].registry: it is empty"},
		"for a URL":            {config: Config{Credentials: []Credential{{"https://a", "ann", text}}}, want: "without a scheme"},
		"docker":               {config: docker("d1", `{"auths":{"a":{"auth":"YW5uOnNlY3JldA=="}}}`)},
		"docker, no JSON":      {config: docker("d2", "x"), want: "images.dockerConfigFile: "},
		"docker, a store":      {config: docker("d3", `{"auths":{"a":{}},"credsStore":"desktop"}`), want: `"desktop" (credsStore), which is not asked`},
		"docker, helpers":      {config: docker("d4", `{"credHelpers":{"a":"b"}}`), want: "credHelpers"},
		"docker, none":         {config: docker("d5", `{}`), want: "holds no credentials"},
		"docker, empty":        {config: docker("d6", `{"auths":{"a":{}}}`), want: `auths["a"] is empty`},
		"docker, no base64":    {config: docker("d7", `{"auths":{"a":{"auth":"%"}}}`), want: `auths["a"].auth is not base64`},
		"docker is not there":  {config: Config{DockerConfigFile: dir + "/none"}, want: "images.dockerConfigFile: open"},
		"proxy without host":   {config: Config{Proxy: Proxy{HTTPSProxy: "proxy:3128"}}, want: `images.proxy.httpsProxy: "proxy:3128": want http://host:port`},
		"proxy that is none":   {config: Config{Proxy: Proxy{HTTPProxy: "http://u:p%zz@x"}}, want: "images.proxy.httpProxy: it is no URL"},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.config.Check("images")
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestWriteHosts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs.d")
	read := func(registry string) string {
		data, err := os.ReadFile(filepath.Join(dir, registry, hostsFile))
		if err != nil {
			return err.Error()
		}
		return string(data)
	}
	mirrors := []Mirror{
		{"docker.io", []Endpoint{
			{URL: "https://a.example", CAFile: "/ca.pem", ClientCertFile: "/c.pem", ClientKeyFile: "/k.pem", InsecureSkipVerify: true},
			{URL: "http://b.example/v2/hub", OverridePath: true, Capabilities: []string{"pull"}},
		}},
		{"reg.example:5000", []Endpoint{{URL: "https://reg.example:5000", CAFile: "/ca.pem"}}},
		{"*", []Endpoint{{URL: "https://a.example"}}},
	}
	if err := WriteHosts(dir, mirrors); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"docker.io": header + `
[host."https://a.example"]
  capabilities = ["pull","resolve"]
  ca = "/ca.pem"
  client = [["/c.pem","/k.pem"]]
  skip_verify = true

[host."http://b.example/v2/hub"]
  capabilities = ["pull"]
  override_path = true
`,
		"reg.example:5000": header + `server = "https://reg.example:5000"
capabilities = ["pull","resolve"]
ca = "/ca.pem"
`,
		"_default": header + `
[host."https://a.example"]
  capabilities = ["pull","resolve"]
`,
	}
	for registry, text := range want {
		if diff := cmp.Diff(read(registry), text); diff != "" {
			t.Errorf("%s: got -, want +:\n%s", registry, diff)
		}
	}
	// What is not wanted any more goes, and what a person wrote stays.
	theirs := filepath.Join(dir, "their.example", hostsFile)
	if err := os.MkdirAll(filepath.Dir(theirs), 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Dir(theirs), hostsFile, "server = \"x\"\n", 0o644)
	if err := WriteHosts(dir, mirrors[:1]); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff(names, []string{"docker.io", "their.example"}); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
	err = WriteHosts(dir, []Mirror{{"their.example", mirrors[0].Endpoints}})
	if err == nil || !strings.Contains(err.Error(), theirs+" was not written by Holdfast") || !strings.HasPrefix(err.Error(), "images.mirrors[0]: ") {
		t.Errorf("got %v", err)
	}
	if got := read("their.example"); got != "server = \"x\"\n" {
		t.Errorf("got %q", got)
	}
}

func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	password := put(t, dir, "p", "secret\n", 0o600)
	docker := put(t, dir, "d", `{"auths":{"b":{"username":"bob"}}}`, 0o600)
	c := Config{Credentials: []Credential{{"a.example", "ann", password}, {"c.example", "cy", dir + "/none"}}, DockerConfigFile: docker}
	secrets, err := c.Secrets()
	if err == nil || !strings.Contains(err.Error(), "images.credentials[1].passwordFile: open ") {
		t.Errorf("got %v", err)
	}
	var got []string
	for _, s := range secrets {
		got = append(got, string(s.Data[v1.DockerConfigJsonKey]))
	}
	want := []string{`{"auths":{"a.example":{"password":"secret","username":"ann"}}}`, `{"auths":{"b":{"username":"bob"}}}`}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
	// The files count as they are at each call.
	put(t, dir, "p", "newer", 0o600)
	if secrets, _ = c.Secrets(); !strings.Contains(string(secrets[0].Data[v1.DockerConfigJsonKey]), "newer") {
		t.Error("the password is an old one")
	}
}

func TestProxy(t *testing.T) {
	env := []string{"A=b", "http_proxy=http://old", "HTTPS_PROXY=http://kept", "no_proxy=x", "NO_PROXY=y"}
	for name, test := range map[string]struct {
		proxy     Proxy
		want, say []string
	}{
		"the environment's": {Proxy{}, env, []string{"HTTPS_PROXY=http://kept", "NO_PROXY=y", "http_proxy=http://old", "no_proxy=x"}},
		"some of it": {
			Proxy{HTTPProxy: "http://new", NoProxy: "z"},
			[]string{"A=b", "HTTPS_PROXY=http://kept", "HTTP_PROXY=http://new", "NO_PROXY=z"},
			[]string{"HTTPS_PROXY=http://kept", "HTTP_PROXY=http://new", "NO_PROXY=z"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.proxy.Environ(env)
			if diff := cmp.Diff(got, test.want); diff != "" {
				t.Errorf("got -, want +:\n%s", diff)
			}
			if diff := cmp.Diff(ProxyOf(got), test.say); diff != "" {
				t.Errorf("proxy: got -, want +:\n%s", diff)
			}
		})
	}
}

func TestAbsolute(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	c := Config{DockerConfigFile: "d", Credentials: []Credential{{PasswordFile: "p"}}, Mirrors: []Mirror{{Endpoints: []Endpoint{{CAFile: "c"}}}}}
	got, err := c.Absolute()
	want := Config{DockerConfigFile: wd + "/d", Credentials: []Credential{{PasswordFile: wd + "/p"}}, Mirrors: []Mirror{{Endpoints: []Endpoint{{CAFile: wd + "/c"}}}}}
	if diff := cmp.Diff(got, want); diff != "" || err != nil || c.Mirrors[0].Endpoints[0].CAFile != "c" {
		t.Errorf("%v; got -, want +:\n%s", err, diff)
	}
}
