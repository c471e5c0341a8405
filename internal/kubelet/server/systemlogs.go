package server

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
)

// serveSystemLogs answers /logs: the files and folders of the machine's logs, and
// nothing outside them, wherever links point.
func (s *Server) serveSystemLogs(w http.ResponseWriter, r *http.Request) {
	root, err := os.OpenRoot(s.cfg.SystemLogs)
	if err != nil {
		s.log.Info("Logs of the machine cannot be read", "err", err)
		http.Error(w, "the logs of the machine cannot be read", http.StatusInternalServerError)
		return
	}
	defer func() { _ = root.Close() }() // nothing was written
	http.StripPrefix("/logs", http.FileServerFS(logFolder{root})).ServeHTTP(w, r)
}

// A logFolder is a folder whose regular files and folders can be opened, without
// waiting, by any path that stays in it.
type logFolder struct{ root *os.Root }

// Open is that of an fs.FS.
func (l logFolder) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := l.open(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		// A Root follows no absolute link, not even one into itself, as those in
		// /var/log/containers are.
		if target, ok := l.resolve(name); ok {
			f, err = l.open(target)
		}
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (l logFolder) open(name string) (*os.File, error) {
	f, err := l.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

// resolve returns the path without links of what is in the folder. Whether it
// still is when it is opened is for the Root to say.
func (l logFolder) resolve(name string) (string, bool) {
	dir, err := filepath.EvalSymlinks(l.root.Name())
	if err != nil {
		return "", false
	}
	path, err := filepath.EvalSymlinks(filepath.Join(dir, name))
	if err != nil {
		return "", false
	}
	target, err := filepath.Rel(dir, path)
	return target, err == nil && filepath.IsLocal(target)
}
