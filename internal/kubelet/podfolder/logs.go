package podfolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

// MakeLogs makes a container's log folder, or with an empty container, the
// pod's.
func (f *Folders) MakeLogs(namespace, name string, uid types.UID, container string) error {
	dir, err := f.logFolder(namespace, name, uid)
	if err != nil {
		return err
	}
	if container != "" {
		if err := checkNames(container); err != nil {
			return err
		}
		dir = filepath.Join(dir, container)
	}
	return os.MkdirAll(dir, 0o755) //nolint:gosec // log shippers of any user read it
}

// LastAttempt returns the highest attempt of a container that has a log,
// rotated ones included.
func (f *Folders) LastAttempt(namespace, name string, uid types.UID, container string) (int32, bool) {
	dir, err := f.logFolder(namespace, name, uid)
	if err != nil {
		return 0, false
	}
	entries, err := os.ReadDir(filepath.Join(dir, container))
	if err != nil {
		return 0, false
	}
	last, found := int32(0), false
	for _, e := range entries {
		number, _, ok := strings.Cut(e.Name(), ".log")
		n, err := strconv.ParseInt(number, 10, 32)
		if ok && err == nil && n >= 0 {
			last, found = max(last, int32(n)), true
		}
	}
	return last, found
}

// RemoveLog removes one container's log and its rotated parts. A path outside
// the logs is an error.
func (f *Folders) RemoveLog(path string) error {
	rel, err := filepath.Rel(f.logs, path)
	if err != nil || !filepath.IsLocal(rel) {
		return fmt.Errorf("log %q is outside %q", path, f.logs)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if name := filepath.Base(path); e.Name() == name || strings.HasPrefix(e.Name(), name+".") {
			errs = append(errs, os.Remove(filepath.Join(filepath.Dir(path), e.Name())))
		}
	}
	return errors.Join(errs...)
}

// RemoveLogs removes a pod's log folder.
func (f *Folders) RemoveLogs(namespace, name string, uid types.UID) error {
	dir, err := f.logFolder(namespace, name, uid)
	if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// SweepLogs removes the log folders of all pods that are not known. What is not
// called as a pod's log folder is left alone.
func (f *Folders) SweepLogs(known func(types.UID) bool) error {
	entries, err := os.ReadDir(f.logs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		parts := strings.Split(e.Name(), "_") // no part has one
		if !e.IsDir() || len(parts) != 3 || parts[2] == "" || known(types.UID(parts[2])) {
			continue
		}
		errs = append(errs, os.RemoveAll(filepath.Join(f.logs, e.Name())))
	}
	return errors.Join(errs...)
}

func (f *Folders) logFolder(namespace, name string, uid types.UID) (string, error) {
	if err := checkNames(namespace, name, string(uid)); err != nil {
		return "", err
	}
	return podfiles.LogFolder(f.logs, namespace, name, uid), nil
}
