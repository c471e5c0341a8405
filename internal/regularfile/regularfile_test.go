package regularfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	file, pipe, link := filepath.Join(dir, "file"), filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte("text"), 0o600), syscall.Mkfifo(pipe, 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, path string
		flags      int
		err        string // part of it; "": it opens
	}{
		{"a file", file, 0, ""},
		{"a link", link, 0, ""},
		{"a link that is not followed", link, syscall.O_NOFOLLOW, "symbolic links"},
		{"a pipe that nobody writes to", pipe, 0, pipe + " is not a regular file"},
		{"a folder", dir, 0, dir + " is not a regular file"},
		{"nothing", filepath.Join(dir, "none"), 0, "no such file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, info, err := Open(tt.path, tt.flags)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if data, err := io.ReadAll(f); err != nil || string(data) != "text" || info.Size() != 4 {
				t.Errorf("got %q, %v, %d bytes", data, err, info.Size())
			}
		})
	}
}

func TestReadAll(t *testing.T) {
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	if err := errors.Join(os.WriteFile(file, []byte("text"), 0o600), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	if data, info, err := ReadAll(file, 4); err != nil || string(data) != "text" || info.Mode().Perm() != 0o600 {
		t.Errorf("got %q, %v, %v", data, info, err)
	}
	for path, want := range map[string]string{file: "has more than 3 bytes", pipe: "is not a regular file"} {
		if data, _, err := ReadAll(path, 3); err == nil || !strings.Contains(err.Error(), path+" "+want) || data != nil {
			t.Errorf("%s: got %q, %v; want %s", path, data, err, want)
		}
	}
}
