// Package podfolder keeps the kubelet's own files about pods on the disk: their
// folders, hosts files, termination messages and log folders.
//
// It writes below the kubelet's folder and the folder of all pods' logs and
// nowhere else: a name that would lead out of them is an error. Methods for
// different pods may be called from any goroutine, those for one pod from one
// at a time.
package podfolder

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

// Folders are the folders of all pods.
type Folders struct {
	root string // the kubelet's folder
	logs string // the folder of all pods' logs
}

// New returns the folders below the kubelet's folder root and the folder logs.
func New(root, logs string) *Folders { return &Folders{root, logs} }

// Make makes a pod's folder with what is in each.
func (f *Folders) Make(uid types.UID) error {
	if err := checkNames(string(uid)); err != nil {
		return err
	}
	dir := podfiles.PodFolder(f.root, uid)
	for _, sub := range []string{"volumes", "plugins", "containers"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o750); err != nil {
			return err
		}
	}
	return nil
}

// NodeHosts returns the node's own hosts file; a missing one is empty.
func (f *Folders) NodeHosts() ([]byte, error) {
	content, err := os.ReadFile("/etc/hosts")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return content, err
}

// WriteHosts writes a pod's hosts file if it is not there as it should be. The
// file itself is written over, because containers have it mounted.
func (f *Folders) WriteHosts(uid types.UID, content []byte) (string, error) {
	if err := checkNames(string(uid)); err != nil {
		return "", err
	}
	path := podfiles.HostsPath(f.root, uid)
	if have, err := os.ReadFile(path); err == nil {
		if bytes.Equal(have, content) {
			return path, nil
		}
		return path, errors.Join(os.WriteFile(path, content, 0o644), os.Chmod(path, 0o644)) //nolint:gosec // containers of any user read it
	}
	return path, atomicfile.Write(path, content, 0o644)
}

// TerminationLog makes the empty file that a container's run number attempt
// writes its last words into. Any user may write it: the container's is not
// known here.
func (f *Folders) TerminationLog(uid types.UID, container string, attempt int32) (string, error) {
	if err := checkNames(string(uid), container); err != nil {
		return "", err
	}
	dir := podfiles.ContainerFolder(f.root, uid, container)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	path := filepath.Join(dir, fmt.Sprint(attempt))
	// Whatever lies there is of a container that never ran; a link is not followed.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666) //nolint:gosec // see above
	if err != nil {
		return "", err
	}
	return path, errors.Join(file.Chmod(0o666), file.Close()) // the umask may have cut it
}

// checkNames refuses what is no plain name of a file.
func checkNames(names ...string) error {
	for _, name := range names {
		if !podfiles.IsFolderName(name) {
			return fmt.Errorf("%q is not a name of a folder", name)
		}
	}
	return nil
}
