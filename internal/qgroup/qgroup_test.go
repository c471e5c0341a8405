package qgroup

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// command runs a program and returns what it printed.
func command(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
	return string(bytes.TrimSpace(out))
}

// newDisk returns where a new btrfs is mounted.
func newDisk(t *testing.T) string {
	t.Helper()
	testenv.Need(t, "root", "mkfs.btrfs", "btrfs")
	device, dir := testenv.LoopDevice(t, 256<<20), t.TempDir()
	command(t, "mkfs.btrfs", "-q", device)
	if err := unix.Mount(device, dir, "btrfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func write(t *testing.T, path string, size int) {
	t.Helper()
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), size), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestRead(t *testing.T) {
	disk := newDisk(t)
	sub := filepath.Join(disk, "sub")
	command(t, "btrfs", "subvolume", "create", sub)
	folder := filepath.Join(sub, "folder")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	none := func(what, dir string) {
		t.Helper()
		if used, err := Read(dir); !errors.Is(err, ErrNone) {
			t.Errorf("%s: %+v, %v; want ErrNone", what, used, err)
		}
	}
	none("quotas are not enabled", sub)
	command(t, "btrfs", "quota", "enable", disk)
	command(t, "btrfs", "quota", "rescan", "-w", disk)
	write(t, filepath.Join(folder, "f"), 3<<20)
	command(t, "btrfs", "qgroup", "limit", "16M", sub)
	for _, when := range []string{"not on the disk yet", "on the disk"} {
		used, err := Read(sub)
		if err != nil || used.Bytes < 3<<20 || used.Bytes > 3<<20+128<<10 || used.Limit != 16<<20 {
			t.Errorf("%s: %+v, %v; want 3 MiB and a little, of 16", when, used, err)
		}
		unix.Sync()
	}
	none("a folder in it", folder)
	none("a file", filepath.Join(folder, "f"))
	none("another filesystem", t.TempDir())
	if _, err := Read(filepath.Join(disk, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	command(t, "btrfs", "quota", "disable", disk)
	none("quotas are disabled", sub)
}

func TestReadGroup(t *testing.T) {
	good := map[string]string{"inconsistent": "0\n", "0_256/referenced": "100\n", "0_256/rsv_data": "20\n", "0_256/limit_flags": "0\n", "0_256/max_referenced": "0\n"}
	for name, test := range map[string]struct {
		change map[string]string // empty: there is no such file
		want   Usage
		none   bool
		fails  bool
	}{
		"no limit":                 {nil, Usage{Bytes: 120}, false, false},
		"a limit":                  {map[string]string{"0_256/limit_flags": "3\n", "0_256/max_referenced": "500\n"}, Usage{120, 500}, false, false},
		"only one of what is own":  {map[string]string{"0_256/limit_flags": "2\n"}, Usage{Bytes: 120}, false, false},
		"a rescan is needed":       {map[string]string{"inconsistent": "1\n"}, Usage{}, true, false},
		"before there was a flag":  {map[string]string{"inconsistent": ""}, Usage{Bytes: 120}, false, false},
		"no such group":            {map[string]string{"0_256/referenced": ""}, Usage{}, true, false},
		"something else than that": {map[string]string{"0_256/referenced": "much\n"}, Usage{}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			files := fstest.MapFS{}
			for name, text := range good {
				if changed, ok := test.change[name]; ok {
					text = changed
				}
				if text != "" {
					files[name] = &fstest.MapFile{Data: []byte(text)}
				}
			}
			got, err := readGroup(files, 256)
			if got != test.want || errors.Is(err, ErrNone) != test.none || (err != nil) != (test.none || test.fails) {
				t.Errorf("got %+v, %v; want %+v", got, err, test.want)
			}
		})
	}
}

func FuzzReadGroup(f *testing.F) {
	f.Add([]byte("100\n"), []byte("1\n"))
	f.Fuzz(func(t *testing.T, referenced, flags []byte) {
		one := &fstest.MapFile{Data: []byte("1")}
		used, err := readGroup(fstest.MapFS{
			"0_5/referenced": &fstest.MapFile{Data: referenced}, "0_5/limit_flags": &fstest.MapFile{Data: flags}, "0_5/rsv_data": one, "0_5/max_referenced": one,
		}, 5)
		if err != nil && used.Limit > 0 {
			t.Errorf("%+v with %v", used, err)
		}
	})
}
