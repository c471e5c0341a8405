package runtimehost

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func sampleConfig() Config {
	return Config{
		RootDir:      "/var/lib/holdfast",
		RunDir:       "/run/holdfast/0a1b2c",
		InstanceID:   "0a1b2c",
		RuntimeDir:   `/opt/hold "fast"/runtime`,
		Bridge:       "hf-0a1b2c",
		Subnet:       netip.MustParsePrefix("10.77.3.0/24"),
		CgroupParent: "/holdfast-0a1b2c",
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), string(want)); diff != "" {
		t.Errorf("%s (-got +want); -update rewrites it:\n%s", path, diff)
	}
}

func TestRender(t *testing.T) {
	for name, restrict := range map[string]bool{"config.toml": false, "config-restricted.toml": true} {
		got, err := sampleConfig().render(restrict)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, got)
	}
	cfg := sampleConfig()
	cfg.Handlers = []Handler{
		{Name: "crun", Binary: "/usr/bin/crun"},
		{Name: "gvisor", Shim: "/usr/local/bin/containerd-shim-runsc-v1", ShimConfig: "/etc/containerd/runsc.toml"},
		{Name: "kata", Shim: "/opt/kata/bin/containerd-shim-kata-v2"},
	}
	got, err := cfg.render(false)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "config-handlers.toml", got)
}

func TestConflist(t *testing.T) {
	got, err := sampleConfig().conflist(1400)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "10-holdfast.conflist", got)
}

func TestValidate(t *testing.T) {
	if err := sampleConfig().validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Config){
		"no root":             func(c *Config) { c.RootDir = "" },
		"the root":            func(c *Config) { c.RootDir = "/" },
		"a folder of the top": func(c *Config) { c.RunDir = "/run" },
		"relative":            func(c *Config) { c.RunDir = "run/holdfast/x" },
		"not clean":           func(c *Config) { c.RootDir = "/var/lib/../../etc/x" },
		"run folder too long": func(c *Config) { c.RunDir = "/run/" + strings.Repeat("x", 40) },
		"no cgroup":           func(c *Config) { c.CgroupParent = "" },
		"the root cgroup":     func(c *Config) { c.CgroupParent = "/" },
		"cgroup outside":      func(c *Config) { c.CgroupParent = "/../x" },
		"cgroup pattern":      func(c *Config) { c.CgroupParent = "/*" },
	} {
		c := sampleConfig()
		change(&c)
		if c.validate() == nil {
			t.Errorf("%s: %+v was accepted", name, c)
		}
	}
}

func TestWrite(t *testing.T) {
	c := sampleConfig()
	c.RootDir, c.RunDir, c.RuntimeDir = filepath.Join(t.TempDir(), "root"), filepath.Join(t.TempDir(), "run"), t.TempDir()
	program := c.program("containerd")
	write := func() string {
		t.Helper()
		hash, err := c.write()
		if err != nil {
			t.Fatal(err)
		}
		return hash
	}
	if err := os.WriteFile(program, []byte("one"), 0o755); err != nil {
		t.Fatal(err)
	}
	first := write()
	if again := write(); again != first {
		t.Errorf("nothing changed, and the hash did: %s, %s", first, again)
	}
	if err := os.WriteFile(program+".new", []byte("two"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(program+".new", program); err != nil {
		t.Fatal(err)
	}
	second := write()
	if second == first {
		t.Error("another program has the same hash")
	}
	if err := os.WriteFile(c.configFile(), []byte("edited"), 0o644); err != nil {
		t.Fatal(err)
	}
	if again := write(); again != second {
		t.Error("a user's edit changed the hash of what is wanted")
	}
	data, err := os.ReadFile(c.configFile())
	if err != nil || !strings.Contains(string(data), "version = 4") {
		t.Errorf("the configuration was not written again: %q, %v", data, err)
	}
}

func TestCheckPrograms(t *testing.T) {
	c := sampleConfig()
	c.RuntimeDir = t.TempDir()
	if err := os.WriteFile(c.program("ctr"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.program("runc"), nil, 0o644); err != nil { // cannot be run
		t.Fatal(err)
	}
	err := c.checkPrograms()
	if err == nil || strings.Contains(err.Error(), "ctr,") || !strings.Contains(err.Error(), "runc") || !strings.Contains(err.Error(), "cni/bridge") {
		t.Errorf("got %v, want all but ctr named", err)
	}
}

func TestLacksSysResource(t *testing.T) {
	for _, tc := range []struct {
		name, status string
		want, ok     bool
	}{
		{"all", "CapInh:\t0\nCapEff:\t000001ffffffffff\n", false, true},
		{"all but that", "CapEff:\t000001fffeffffff\n", true, true},
		{"none", "CapEff:\t0000000000000000\n", true, true},
		{"no line", "CapInh:\t0\n", false, false},
		{"no number", "CapEff:\tall\n", false, false},
	} {
		path := filepath.Join(t.TempDir(), "status")
		if err := os.WriteFile(path, []byte(tc.status), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := lacksSysResource(path); got != tc.want || (err == nil) != tc.ok {
			t.Errorf("%s: got %v, %v; want %v", tc.name, got, err, tc.want)
		}
	}
}

func TestEnviron(t *testing.T) {
	got := sampleConfig().environ([]string{
		"HTTPS_PROXY=http://proxy", "NOTIFY_SOCKET=/run/notify", "LISTEN_FDS=1", "PATH=/usr/bin", hashVariable + "=old",
	})
	want := []string{
		"HTTPS_PROXY=http://proxy",
		`PATH=/opt/hold "fast"/runtime:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`,
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("environment (-got +want):\n%s", diff)
	}
}

func TestBoundLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := boundLog(path, 4); err != nil {
		t.Errorf("no log: %v", err)
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for _, step := range []struct{ line, now, older string }{
		{"1234", "1234", ""},
		{"5", "", "12345"},
		{"67", "67", "12345"},
		{"89a", "", "6789a"},
	} {
		if _, err := log.WriteString(step.line); err != nil {
			t.Fatal(err)
		}
		if err := boundLog(path, 4); err != nil {
			t.Fatal(err)
		}
		now, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		older, _ := os.ReadFile(path + ".1") // absent at first
		if string(now) != step.now || string(older) != step.older {
			t.Errorf("after %q: got %q and %q, want %q and %q", step.line, now, older, step.now, step.older)
		}
	}
}

func TestComplaints(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte(strings.Repeat("old\n", 50000)+"a\nb\ntime=1 level=info msg=i\nc\nd\ne\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, want := complaints(path), "a\nb\nc\nd\ne"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFindRuntimeDir(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOLDFAST_RUNTIME_DIR", dir)
	if got, err := FindRuntimeDir(); got != dir || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, dir)
	}
	t.Setenv("HOLDFAST_RUNTIME_DIR", "")
	if got, err := FindRuntimeDir(); err == nil && got != "/usr/libexec/holdfast" {
		t.Errorf("beside a test there is no runtime: got %q", got)
	} else if err != nil && !strings.Contains(err.Error(), "--container-runtime-endpoint") {
		t.Errorf("%v does not say what to do", err)
	}
}

func TestBundledImages(t *testing.T) {
	images := bundledImages([]byte("program"))
	var refs []string
	for _, img := range images {
		refs = append(refs, img.Refs...)
		if got := string(img.Files[img.Entrypoint[0]].Content); got != "program" {
			t.Errorf("%v: the entry point's content is %q", img.Refs, got)
		}
	}
	if !slices.Equal(refs, []string{PauseImage, DemoImage}) {
		t.Errorf("got %v", refs)
	}
}
