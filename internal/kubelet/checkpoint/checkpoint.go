// Package checkpoint is the folder in which a node keeps what it needs to start
// its pods while the API server is away. Package checkpointfile has the format
// of its files, one an object.
//
// The folder has mode 0700 and its files 0600. Each is replaced as a whole, so
// that a crash at any moment leaves the old one or the new. Where a key file is
// configured and cannot be used, nothing is written, and nothing that is
// encrypted can be read, until it can: nothing is ever written in the clear then.
//
// A Folder may be used by any goroutine.
package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpointfile"
)

// Config says where the folder is.
type Config struct {
	// Dir is the folder, made if it is missing. Absolute.
	Dir string
	// KeyFile holds the key that encrypts the files: 32 bytes in base64, readable
	// for its owner alone. Empty: they are not encrypted.
	KeyFile string
}

// A Folder keeps objects on the disk.
type Folder struct {
	cfg Config

	writing sync.Mutex // held while there is a temporary file

	mu     sync.Mutex             // guards the field below
	cipher *checkpointfile.Cipher // nil: not read yet, or none is configured
}

// New returns a Folder. It touches nothing.
func New(cfg Config) *Folder { return &Folder{cfg: cfg} }

// Files reads all files of the folder. Those that cannot be read have an error.
// What a write that was killed left behind is removed.
func (f *Folder) Files() ([]checkpointfile.File, error) {
	f.writing.Lock()
	defer f.writing.Unlock()
	entries, err := os.ReadDir(f.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the checkpoint: %w", err)
	}
	var files []checkpointfile.File
	for _, entry := range entries {
		switch name := entry.Name(); {
		case strings.HasPrefix(name, ".tmp-"):
			if err := os.Remove(filepath.Join(f.cfg.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("remove what is left of a write: %w", err)
			}
		case strings.HasSuffix(name, checkpointfile.Suffix):
			files = append(files, f.file(name))
		}
	}
	return files, nil
}

// file reads a file. One that lies under another object's name is damaged.
func (f *Folder) file(name string) checkpointfile.File {
	file := checkpointfile.File{Name: name}
	data, err := f.read(name)
	if err == nil {
		file.Key, file.Object, err = f.decode(data)
	}
	if err == nil && file.Key.File() != name {
		file.Object, err = nil, checkpointfile.ErrDamaged
	}
	if err != nil {
		file.Err = fmt.Errorf("%s: %w", filepath.Join(f.cfg.Dir, name), err)
	}
	return file
}

// read reads at most what a file may have. A link that leaves the folder is not
// followed, and one inside leads to another object, which Decode's key tells.
func (f *Folder) read(name string) (data []byte, err error) {
	root, err := os.OpenRoot(f.cfg.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return io.ReadAll(io.LimitReader(file, checkpointfile.MaxSize+1))
}

func (f *Folder) decode(data []byte) (checkpointfile.Key, []byte, error) {
	c, err := f.key()
	if err != nil {
		key, _, _ := checkpointfile.Decode(data, nil)
		return key, nil, err
	}
	return checkpointfile.Decode(data, c)
}

// Read returns what the folder has of an object. The error is fs.ErrNotExist if
// that is nothing, and one of checkpointfile's if it cannot be used.
func (f *Folder) Read(key checkpointfile.Key) ([]byte, error) {
	file := f.file(key.File())
	return file.Object, file.Err
}

// Write keeps an object.
func (f *Folder) Write(key checkpointfile.Key, object []byte) error {
	c, err := f.key()
	if err != nil {
		return err
	}
	data, err := checkpointfile.Encode(key, object, c)
	if err != nil {
		return err
	}
	f.writing.Lock()
	defer f.writing.Unlock()
	if err := f.make(); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(f.cfg.Dir, key.File()), data, 0o600)
}

// make makes the folder, and closes one that is open to others.
func (f *Folder) make() error {
	if err := os.MkdirAll(f.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of the checkpoint: %w", err)
	}
	info, err := os.Stat(f.cfg.Dir)
	if err == nil && info.Mode().Perm() != 0o700 {
		err = os.Chmod(f.cfg.Dir, 0o700)
	}
	if err != nil {
		return fmt.Errorf("folder of the checkpoint: %w", err)
	}
	return nil
}

// Remove removes a file, by its name in the folder. One that is not there is no
// error.
func (f *Folder) Remove(name string) error {
	if err := os.Remove(filepath.Join(f.cfg.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove from the checkpoint: %w", err)
	}
	return nil
}

// Check returns why nothing can be read or written now, or nil.
func (f *Folder) Check() error {
	_, err := f.key()
	return err
}

// key returns the cipher of the configured key, nil if none is. The key file is
// read until that works.
func (f *Folder) key() (*checkpointfile.Cipher, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cipher != nil || f.cfg.KeyFile == "" {
		return f.cipher, nil
	}
	info, err := os.Stat(f.cfg.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("key of the checkpoint: %w", err)
	}
	if open := info.Mode().Perm() & 0o077; open != 0 {
		return nil, fmt.Errorf("key of the checkpoint: %s is open to others (mode %04o): run chmod 600 on it", f.cfg.KeyFile, info.Mode().Perm())
	}
	text, err := os.ReadFile(f.cfg.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("key of the checkpoint: %w", err)
	}
	c, err := checkpointfile.ParseKey(text)
	if err != nil {
		return nil, fmt.Errorf("key of the checkpoint: %s: %w", f.cfg.KeyFile, err)
	}
	f.cipher = c
	return c, nil
}
