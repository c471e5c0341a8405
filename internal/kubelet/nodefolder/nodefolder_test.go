package nodefolder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, dir, path string) {
	t.Helper()
	file := filepath.Join(dir, path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTake(t *testing.T) {
	for name, test := range map[string]struct {
		files []string
		mark  string // empty: none
		want  error  // nil: it is taken
		says  string
	}{
		"empty":                       {},
		"what kubeadm writes":         {files: []string{"config.yaml", "kubeadm-flags.env", "pki/kubelet.crt", "instance-config.yaml"}},
		"pods of an upstream kubelet": {files: []string{"pods/1234/etc-hosts"}, want: ErrUpstream, says: "pods/ with 1234"},
		"its state":                   {files: []string{"cpu_manager_state", "memory_manager_state"}, want: ErrUpstream, says: "cpu_manager_state, memory_manager_state"},
		"its devices":                 {files: []string{"device-plugins/kubelet_internal_checkpoint"}, want: ErrUpstream, says: "kubelet_internal_checkpoint"},
		"its plugins":                 {files: []string{"plugins_registry/x.sock"}, want: ErrUpstream, says: "plugins_registry/ with x.sock"},
		"ours":                        {files: []string{"pods/1234/etc-hosts", "plugins_registry/x.sock"}, mark: `{"version":1}`},
		"ours, then upstream's":       {files: []string{"cpu_manager_state"}, mark: `{"version":1}`, want: ErrUpstream, says: "cpu_manager_state"},
		"a newer one's":               {mark: `{"version":2}`, want: ErrNewer, says: "use that newer version"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range test.files {
				write(t, dir, file)
			}
			if test.mark != "" {
				if err := os.WriteFile(filepath.Join(dir, markFile), []byte(test.mark), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := Check(dir); !errors.Is(err, test.want) {
				t.Errorf("Check: %v, want %v", err, test.want)
			}
			release, err := Take(dir)
			if !errors.Is(err, test.want) {
				t.Fatalf("got %v, want %v", err, test.want)
			}
			if test.want != nil {
				if !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), dir) {
					t.Errorf("%v: want %q and the folder in it", err, test.says)
				}
				_, err := os.Stat(filepath.Join(dir, markFile))
				if marked := err == nil; marked != (test.mark != "") {
					t.Errorf("marked: %v", marked)
				}
				return
			}
			_, err = Take(dir)
			if !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), fmt.Sprintf("process %d:", os.Getpid())) {
				t.Errorf("taken twice: %v", err)
			}
			if err := release(); err != nil {
				t.Fatal(err)
			}
			write(t, dir, "pods/1234/etc-hosts") // ours
			release, err = Take(dir)
			if err != nil {
				t.Fatalf("a second start: %v", err)
			}
			if err := release(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestDamagedMark(t *testing.T) {
	for _, content := range []string{"", "{", "{}", `{"version":"1"}`, "\x00"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, markFile), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Take(dir); err == nil || !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("mark %q: %v", content, err)
		}
	}
}

func TestNoFolder(t *testing.T) {
	if _, err := Take(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func FuzzMark(f *testing.F) {
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":99}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		err := readMark("mark", data)
		if err == nil && !strings.Contains(string(data), "1") {
			t.Errorf("%q was taken for version 1", data)
		}
	})
}
