// Package nodefolder guards the root folder of a node agent (--root-dir): one that
// the upstream kubelet uses is refused rather than half adopted, a newer Holdfast's
// as well, and one agent at a time has it.
//
// Taking a folder writes into it holdfast.json, the mark with a version, and
// holdfast.lock. Everything may be called from any goroutine.
package nodefolder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
	"github.com/holdfast-dev/holdfast/internal/regularfile"
)

// The errors of Take, for errors.Is.
var (
	// ErrUpstream is returned for a folder that an upstream kubelet used.
	ErrUpstream = errors.New("an upstream kubelet has used this folder")
	// ErrNewer is returned for a folder that a newer Holdfast used.
	ErrNewer = errors.New("written by a newer Holdfast")
	// ErrRunning is returned for a folder that another process has.
	ErrRunning = errors.New("another node agent runs here")
)

const (
	markFile = "holdfast.json"
	lockFile = "holdfast.lock"
	// version is of the folder's layout.
	version = 1
	maxMark = 4 << 10 // bytes
)

// mark is markFile.
type mark struct {
	Version int `json:"version"`
}

// traces are what an upstream kubelet leaves in its root folder, by the path below
// it. What kubeadm and packages put there before a first start (config.yaml,
// kubeadm-flags.env, pki) is none.
var traces = []struct {
	path string
	// entry is whether an empty folder is none.
	entry bool
	// ever is whether our agent never writes it, so that it shows an upstream
	// kubelet even in a folder that has our mark.
	ever bool
}{
	{path: "cpu_manager_state", ever: true},
	{path: "memory_manager_state", ever: true},
	{path: "dra_manager_state", ever: true},
	{path: "allocated_pods_state", ever: true},
	{path: "actuated_pods_state", ever: true},
	{path: "device-plugins/kubelet_internal_checkpoint"},
	{path: "pods", entry: true},
	{path: "plugins_registry", entry: true},
	{path: "plugins", entry: true},
	{path: "pod-resources", entry: true},
}

// Take takes the folder dir, which exists, for this process until it ends,
// however it ends, or until release is called. The errors name the folder, what
// was found and what to do.
func Take(dir string) (release func() error, err error) {
	lock, err := takeLock(dir)
	if err != nil {
		return nil, err
	}
	if err := adopt(dir); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock.Close, nil
}

// Check says why Take would refuse the folder, whoever has it now. It writes
// nothing.
func Check(dir string) error {
	_, err := look(dir)
	return err
}

func adopt(dir string) error {
	ours, err := look(dir)
	if err != nil || ours {
		return err
	}
	data, err := json.Marshal(mark{version})
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, markFile), append(data, '\n'), 0o644)
}

// look reports whether the folder has our mark.
func look(dir string) (ours bool, err error) {
	path := filepath.Join(dir, markFile)
	data, _, err := regularfile.ReadAll(path, maxMark)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return false, fmt.Errorf("root folder: %w", err)
	default:
		ours = true
		if err := readMark(path, data); err != nil {
			return false, err
		}
	}
	found, err := findTraces(dir, ours)
	if err != nil {
		return false, fmt.Errorf("root folder: %w", err)
	}
	if len(found) > 0 {
		return false, fmt.Errorf("%s: %w: it holds %s. Take another folder (--root-dir /var/lib/holdfast-kubelet), or drain the node, stop that kubelet, move the folder away (mv %s %s.upstream) and start again",
			dir, ErrUpstream, strings.Join(found, ", "), dir, filepath.Clean(dir))
	}
	return ours, nil
}

func readMark(path string, data []byte) error {
	var m mark
	if err := json.Unmarshal(data, &m); err != nil || m.Version < 1 {
		return fmt.Errorf("%s is damaged (%.60q): write {\"version\":%d} into it if Holdfast alone has used this folder", path, data, version)
	}
	if m.Version > version {
		return fmt.Errorf("%s has version %d and this program reads up to %d: %w (use that newer version)", path, m.Version, version, ErrNewer)
	}
	return nil
}

func findTraces(dir string, ours bool) (found []string, err error) {
	for _, t := range traces {
		if ours && !t.ever {
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(t.path))
		if t.entry {
			entries, err := os.ReadDir(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			if len(entries) > 0 {
				found = append(found, fmt.Sprintf("%s/ with %s", t.path, entries[0].Name()))
			}
			continue
		}
		switch _, err := os.Lstat(path); {
		case err == nil:
			found = append(found, t.path)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return found, nil
}

func takeLock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the root folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _, _ := regularfile.ReadAll(path, 32) // for people
		_ = f.Close()                                 // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w as process %s: stop that one, or give this one another --root-dir", dir, ErrRunning, strings.TrimSpace(string(holder)))
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", path, err), f.Close())
	}
	return f, nil
}
