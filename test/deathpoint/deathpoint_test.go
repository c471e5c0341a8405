package deathpoint

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

const childDir = "DEATHPOINT_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child makes four changes: a folder, a file, its content, and a link by a program.
func child(dir string) error {
	if err := Arm(); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "folder", "file"), []byte("content"), 0o600); err != nil {
		return err
	}
	return exec.Command("ln", "-s", "folder", filepath.Join(dir, "link")).Run()
}

// A process that dies before each of its steps has made all those before it.
func TestRun(t *testing.T) {
	testenv.Need(t, "root")
	run := func(before int) (string, Result) {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		cmd.Stderr = os.Stderr
		result, err := Run(Config{Cmd: cmd, Dir: dir, Before: before})
		if err != nil {
			t.Fatal(err)
		}
		var there []string
		if _, err := os.Stat(filepath.Join(dir, "folder")); err == nil {
			there = append(there, "folder")
		}
		if content, err := os.ReadFile(filepath.Join(dir, "folder/file")); err == nil {
			there = append(there, fmt.Sprintf("file(%s)", content))
		}
		if _, err := os.Lstat(filepath.Join(dir, "link")); err == nil {
			there = append(there, "link")
		}
		return strings.Join(there, " "), result
	}
	for before, want := range []string{"", "folder", "folder file()", "folder file(content)"} {
		got, result := run(before)
		if got != want || !result.Died || len(result.Steps) != before+1 {
			t.Errorf("killed before %d: there is %q, want %q; %+v", before, got, want, result)
		}
	}
	got, result := run(-1)
	if got != "folder file(content) link" || result.Died || len(result.Steps) != 4 {
		t.Errorf("not killed: there is %q, %+v", got, result)
	}
}
