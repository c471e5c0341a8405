package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

func write(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("write takes a path and a text: %w", errUsage)
	}
	return os.WriteFile(args[0], []byte(args[1]+"\n"), 0o644)
}

func cat(paths []string, out io.Writer) error {
	if len(paths) == 0 {
		return fmt.Errorf("cat takes at least one path: %w", errUsage)
	}
	var errs []error
	for _, path := range paths {
		errs = append(errs, catOne(path, out))
	}
	return errors.Join(errs...)
}

func catOne(path string, out io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, f)
	return errors.Join(err, f.Close())
}

func list(paths []string, out io.Writer) error {
	if len(paths) == 0 {
		return fmt.Errorf("ls takes at least one path: %w", errUsage)
	}
	var errs []error
	for _, path := range paths {
		errs = append(errs, listOne(path, out))
	}
	return errors.Join(errs...)
}

func listOne(path string, out io.Writer) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		info, err = os.Lstat(path)
		if err != nil {
			return err
		}
		return listLine(out, path, path, info)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone since the folder was read
		}
		if err == nil {
			err = listLine(out, filepath.Join(path, e.Name()), e.Name(), info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func listLine(out io.Writer, path, name string, info fs.FileInfo) error {
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		name += " -> " + target
	}
	var uid, gid uint32
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		uid, gid = st.Uid, st.Gid
	}
	_, err := fmt.Fprintf(out, "%s %d:%d %d %s\n", info.Mode(), uid, gid, info.Size(), name)
	return err
}
