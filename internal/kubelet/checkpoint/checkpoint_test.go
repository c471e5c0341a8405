package checkpoint_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpoint"
	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpointfile"
)

var configMap = checkpointfile.Key{Kind: checkpointfile.ConfigMap, Namespace: "default", Name: "c"}

// writerEnv has the test binary write into that folder until it is killed.
const writerEnv = "HOLDFAST_TEST_CHECKPOINT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerEnv); dir != "" {
		writeForEver(dir)
	}
	os.Exit(m.Run())
}

func keyFile(t *testing.T, b byte, mode fs.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32))), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func write(t *testing.T, f *checkpoint.Folder, key checkpointfile.Key, object string) {
	t.Helper()
	if err := f.Write(key, []byte(object)); err != nil {
		t.Fatal(err)
	}
}

// show writes files as `ConfigMap default/c = x`, or with their error's last part.
func show(t *testing.T, f *checkpoint.Folder) []string {
	t.Helper()
	files, err := f.Files()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, file := range files {
		text := string(file.Object)
		if file.Err != nil {
			_, text, _ = strings.Cut(file.Err.Error(), checkpointfile.Suffix+": ")
		}
		lines = append(lines, file.Key.String()+" = "+text)
	}
	slices.Sort(lines)
	return lines
}

func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "checkpoint")
	f := checkpoint.New(checkpoint.Config{Dir: dir})
	if _, err := f.Read(configMap); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before anything was written: %v", err)
	}
	if got := show(t, f); got != nil {
		t.Errorf("before anything was written: %v", got)
	}
	write(t, f, configMap, "one")
	write(t, f, configMap, "two")
	write(t, f, checkpointfile.PodKey("default", "p", "u"), "pod")
	if diff := cmp.Diff(show(t, f), []string{"ConfigMap default/c = two", "Pod default/p = pod"}); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	if got, err := f.Read(configMap); string(got) != "two" || err != nil {
		t.Errorf("read: %q, %v", got, err)
	}
	for range 2 {
		if err := f.Remove(configMap.File()); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff(show(t, f), []string{"Pod default/p = pod"}); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
}

func TestModes(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // it is to be closed
		t.Fatal(err)
	}
	f := checkpoint.New(checkpoint.Config{Dir: dir})
	write(t, f, configMap, "x")
	for path, want := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, configMap.File()): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
}

// TestDamage holds that a damaged file costs only the object that was in it.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	f := checkpoint.New(checkpoint.Config{Dir: dir})
	other := checkpointfile.Key{Kind: checkpointfile.Secret, Namespace: "default", Name: "s"}
	write(t, f, configMap, "x")
	write(t, f, other, "y")
	path := filepath.Join(dir, configMap.File())
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"empty": nil, "half": data[:len(data)-1], "zeros": make([]byte, len(data))} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Read(configMap); !errors.Is(err, checkpointfile.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := f.Read(other); string(got) != "y" || err != nil {
			t.Errorf("%s: the other object: %q, %v", name, got, err)
		}
	}
	if err := os.Rename(filepath.Join(dir, other.File()), path); err != nil { // under another's name
		t.Fatal(err)
	}
	if _, err := f.Read(configMap); !errors.Is(err, checkpointfile.ErrDamaged) {
		t.Errorf("another object's file: %v", err)
	}
}

// TestLink holds that nothing outside of the folder is read.
func TestLink(t *testing.T) {
	dir := t.TempDir()
	outside := checkpoint.New(checkpoint.Config{Dir: t.TempDir()})
	write(t, outside, configMap, "x")
	files, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "*", configMap.File()))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.Symlink(files[0], filepath.Join(dir, configMap.File())); err != nil {
		t.Fatal(err)
	}
	if got, err := checkpoint.New(checkpoint.Config{Dir: dir}).Read(configMap); err == nil {
		t.Errorf("a link out of the folder was followed: %q", got)
	}
}

func TestKeys(t *testing.T) {
	dir := t.TempDir()
	one, two := keyFile(t, 1, 0o600), keyFile(t, 2, 0o600)
	folder := func(key string) *checkpoint.Folder {
		return checkpoint.New(checkpoint.Config{Dir: dir, KeyFile: key})
	}
	write(t, folder(one), configMap, "x")
	if got, err := folder(one).Read(configMap); string(got) != "x" || err != nil {
		t.Errorf("the same key: %q, %v", got, err)
	}
	missing := filepath.Join(t.TempDir(), "key")
	for name, tt := range map[string]struct {
		key  string
		want error
	}{"another": {two, checkpointfile.ErrKey}, "none": {"", checkpointfile.ErrNoKey}, "lost": {missing, fs.ErrNotExist}} {
		if _, err := folder(tt.key).Read(configMap); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if want := []string{"ConfigMap default/c = "}; !strings.HasPrefix(show(t, folder(tt.key))[0], want[0]) {
			t.Errorf("%s: the object is not named: %v", name, show(t, folder(tt.key)))
		}
	}

	// While the key is lost nothing is written, least of all in the clear.
	lost := folder(missing)
	if err := lost.Write(configMap, []byte("y")); !errors.Is(err, fs.ErrNotExist) || lost.Check() == nil {
		t.Errorf("write without the key: %v, %v", err, lost.Check())
	}
	if err := os.Rename(one, missing); err != nil {
		t.Fatal(err)
	}
	if got, err := lost.Read(configMap); string(got) != "x" || err != nil || lost.Check() != nil {
		t.Errorf("the key is back: %q, %v", got, err)
	}
	if err := checkpoint.New(checkpoint.Config{Dir: dir, KeyFile: keyFile(t, 1, 0o644)}).Check(); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others can read: %v", err)
	}
}

// TestKilledWrite holds, for every point at which a write may be killed, that the
// folder has the old object or the new, and in the end no more than that.
func TestKilledWrite(t *testing.T) {
	old, fresh := t.TempDir(), t.TempDir()
	write(t, checkpoint.New(checkpoint.Config{Dir: old}), configMap, "old")
	write(t, checkpoint.New(checkpoint.Config{Dir: fresh}), configMap, "new")
	data, err := os.ReadFile(filepath.Join(fresh, configMap.File()))
	if err != nil {
		t.Fatal(err)
	}
	temporary := filepath.Join(old, ".tmp-"+configMap.File()+"-1")
	for n := range len(data) + 1 { // written so far
		if err := os.WriteFile(temporary, data[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(show(t, checkpoint.New(checkpoint.Config{Dir: old})), []string{"ConfigMap default/c = old"}); diff != "" {
			t.Fatalf("after %d bytes (-got +want):\n%s", n, diff)
		}
		if _, err := os.Stat(temporary); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("after %d bytes the temporary file is still there: %v", n, err)
		}
	}
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(old, configMap.File())); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(show(t, checkpoint.New(checkpoint.Config{Dir: old})), []string{"ConfigMap default/c = new"}); diff != "" {
		t.Errorf("after the rename (-got +want):\n%s", diff)
	}
}

// TestKill kills a process that writes all the time: whatever it was at, each
// object can be read.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 20 {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), writerEnv+"="+dir)
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		folder := checkpoint.New(checkpoint.Config{Dir: dir})
		deadline := time.Now().Add(time.Minute)
		for { // until it writes
			if got, err := folder.Read(writerKey(0)); err == nil && strings.HasPrefix(string(got), fmt.Sprint(cmd.Process.Pid)) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the writer does not write")
			}
		}
		time.Sleep(time.Duration(round) * 500 * time.Microsecond) // another step each time
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		files, err := folder.Files()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if f.Err != nil {
				t.Errorf("round %d: %v", round, f.Err)
			}
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != len(files) {
			t.Errorf("round %d: left behind: %v, %v", round, entries, err)
		}
	}
}

func writerKey(i int) checkpointfile.Key {
	return checkpointfile.Key{Kind: checkpointfile.Secret, Namespace: "default", Name: fmt.Sprint("s", i)}
}

func writeForEver(dir string) {
	go func() { // whoever wants to kill it may be gone
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	f := checkpoint.New(checkpoint.Config{Dir: dir})
	for i := 0; ; i++ {
		key := writerKey(i % 5)
		object := fmt.Appendf(nil, "%d %s", os.Getpid(), strings.Repeat("x", 4096*(i%7)))
		if err := f.Write(key, object); err != nil {
			panic(err)
		}
		if i%11 == 10 {
			if err := f.Remove(writerKey(3).File()); err != nil {
				panic(err)
			}
		}
	}
}
