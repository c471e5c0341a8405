// Package backup reads and writes backups of a node: one gzipped tar archive,
// mode 0600, that begins with an index of what is in it, with checksums.
//
// It also swaps the restored files in: they are staged beside the ones that
// are there, and either all or none take their place, whenever the process or
// the machine stops. Two processes must not use one root folder at once; the
// instance's lock is the caller's.
package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// FormatVersion is that of the archive. A program reads its own and the two
// before it.
const FormatVersion = 1

// indexName is the first file of an archive, indexLimit what it may have.
const (
	indexName  = "holdfast-backup.json"
	indexLimit = 64 << 20
)

// Errors that say why a file is no backup that can be used.
var (
	// ErrDamaged is returned when a file is no backup, or not a whole one.
	ErrDamaged = errors.New("the backup is damaged")
	// ErrNewer is returned when a newer Holdfast made the backup.
	ErrNewer = errors.New("the backup was made by a newer Holdfast")
)

// An Index says what a backup holds. docs/formats.md describes it.
type Index struct {
	Version     int       `json:"version"`
	Created     time.Time `json:"created"`
	Holdfast    string    `json:"holdfast"` // the version that made it
	StoreFormat int       `json:"storeFormat"`
	Node        string    `json:"node"`
	ID          string    `json:"id"`
	RootDir     string    `json:"rootDir"`
	ManifestDir string    `json:"manifestDir"`
	Files       []Entry   `json:"files"` // in the archive's order
}

// An Entry is one file of a backup.
type Entry struct {
	Name   string      `json:"name"` // slashes, below the root folder
	Mode   fs.FileMode `json:"mode"`
	Size   int64       `json:"size"`
	SHA256 string      `json:"sha256"` // hexadecimal
}

// A File is what goes into a backup: Data, or, if that is nil, the file at Path,
// which must not change meanwhile.
type File struct {
	Name string
	Mode fs.FileMode
	Data []byte
	Path string
}

func (f File) open() (io.ReadCloser, error) {
	if f.Data != nil {
		return io.NopCloser(bytes.NewReader(f.Data)), nil
	}
	return os.Open(f.Path)
}

// Write makes the backup at path, mode 0600, of files. What was at path stays
// until the backup is whole.
func Write(path string, index Index, files []File) error {
	index.Version = FormatVersion
	for _, f := range files {
		e, err := f.entry()
		if err != nil {
			return fmt.Errorf("read %s: %w", f.Name, err)
		}
		index.Files = append(index.Files, e)
	}
	dir := filepath.Dir(path)
	out, err := os.CreateTemp(dir, ".tmp-"+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	err = errors.Join(writeArchive(out, index, files), out.Sync(), out.Close())
	if err == nil {
		err = os.Rename(out.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(out.Name()))
	}
	return syncFolder(dir)
}

func (f File) entry() (Entry, error) {
	r, err := f.open()
	if err != nil {
		return Entry{}, err
	}
	hash := sha256.New()
	size, err := io.Copy(hash, r)
	return Entry{f.Name, f.Mode.Perm(), size, hex.EncodeToString(hash.Sum(nil))}, errors.Join(err, r.Close())
}

func writeArchive(w io.Writer, index Index, files []File) error {
	head, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return err
	}
	zip := gzip.NewWriter(w)
	archive := tar.NewWriter(zip)
	files = append([]File{{Name: indexName, Mode: 0o600, Data: head}}, files...)
	sizes := append([]Entry{{Size: int64(len(head))}}, index.Files...)
	for i, f := range files {
		if err := writeFile(archive, f, sizes[i].Size, index.Created); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return errors.Join(archive.Close(), zip.Close())
}

func writeFile(archive *tar.Writer, f File, size int64, created time.Time) error {
	err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Mode: int64(f.Mode.Perm()), Size: size, ModTime: created})
	if err != nil {
		return err
	}
	r, err := f.open()
	if err != nil {
		return err
	}
	_, err = io.Copy(archive, r)
	return errors.Join(err, r.Close())
}

// Extract unpacks the backup at path into dir and returns its index. Every
// byte has been compared with its checksum when it returns nil. Nothing is
// written outside dir.
func Extract(path, dir string) (index Index, err error) {
	f, err := os.Open(path)
	if err != nil {
		return Index{}, fmt.Errorf("open the backup: %w", err)
	}
	defer f.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Index{}, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if index, err = extract(f, root); err != nil {
		return index, fmt.Errorf("read %s: %w", path, err)
	}
	return index, nil
}

func extract(r io.Reader, root *os.Root) (Index, error) {
	zip, err := gzip.NewReader(r)
	if err != nil {
		return Index{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	archive := tar.NewReader(zip)
	index, err := readIndex(archive)
	if err != nil {
		return index, err
	}
	for _, e := range index.Files {
		header, err := archive.Next()
		if err != nil {
			return index, fmt.Errorf("%w: %s is missing: %w", ErrDamaged, e.Name, err)
		}
		if header.Name != e.Name || header.Typeflag != tar.TypeReg || !filepath.IsLocal(e.Name) {
			return index, fmt.Errorf("%w: it holds %q where %q belongs", ErrDamaged, header.Name, e.Name)
		}
		if err := extractFile(archive, root, e); err != nil {
			return index, err
		}
	}
	if _, err := archive.Next(); !errors.Is(err, io.EOF) {
		return index, fmt.Errorf("%w: it does not end where its index does", ErrDamaged)
	}
	if _, err := io.Copy(io.Discard, zip); err != nil { // the checksum of the whole is at its end
		return index, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return index, nil
}

func readIndex(archive *tar.Reader) (Index, error) {
	var index Index
	header, err := archive.Next()
	if err != nil {
		return index, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if header.Name != indexName {
		return index, fmt.Errorf("%w: it begins with %q, not %s: is it a backup?", ErrDamaged, header.Name, indexName)
	}
	if err := json.NewDecoder(io.LimitReader(archive, indexLimit)).Decode(&index); err != nil {
		return index, fmt.Errorf("%w: its index: %w", ErrDamaged, err)
	}
	if index.Version > FormatVersion {
		return index, fmt.Errorf("%w: it has format %d, this program reads up to %d: restore it with that version of Holdfast, %s",
			ErrNewer, index.Version, FormatVersion, index.Holdfast)
	}
	if index.Version < 1 {
		return index, fmt.Errorf("%w: its index has no version", ErrDamaged)
	}
	return index, nil
}

func extractFile(r io.Reader, root *os.Root, e Entry) error {
	if err := root.MkdirAll(filepath.Dir(e.Name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(e.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	hash := sha256.New()
	size, err := io.Copy(io.MultiWriter(f, hash), r)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, gzip.ErrChecksum) {
		err = fmt.Errorf("%w: %s: %w", ErrDamaged, e.Name, err)
	}
	err = errors.Join(err, f.Chmod(e.Mode.Perm()), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); size != e.Size || got != e.SHA256 {
		return fmt.Errorf("%w: %s is not what was backed up (its checksum differs)", ErrDamaged, e.Name)
	}
	return nil
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
