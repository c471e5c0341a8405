// Package certstore keeps a certificate with its key in a folder, laid out as the
// upstream kubelet lays out its own, so that each can go on with what the other
// left there:
//
//	NAME-2026-11-29-15-04-05.pem  a certificate, its chain and its key, in PEM
//	NAME-current.pem              a link to the one in use
//	NAME.key.tmp                  the key of a request that is not answered yet
//
// Whoever dies in the middle of a change leaves the pair before it in use. The
// folder may be shared by stores of different names. A Store is for one goroutine
// at a time.
package certstore

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
	"github.com/holdfast-dev/holdfast/internal/regularfile"
)

// ErrNone is returned by Current when the folder holds no certificate.
var ErrNone = errors.New("there is no certificate yet")

const (
	// maxSize is how many bytes a file may have.
	maxSize = 1 << 20
	// kept is how many pairs stay: the one in use and the one before it, to which
	// an operator can go back.
	kept = 2
	// stamp is how upstream writes the time into names; it sorts.
	stamp = "2006-01-02-15-04-05"
)

// A Pair is a certificate with its key.
type Pair struct {
	*tls.Certificate // with its Leaf; nobody may change it
	// Since is when it was put into the folder.
	Since time.Time
}

// A Store is one name in one folder.
type Store struct {
	dir, name string
	stamped   *regexp.Regexp // names of pairs
}

// New returns the store of that name, such as kubelet-client, in dir, which need
// not be there yet.
func New(dir, name string) *Store {
	return &Store{dir: dir, name: name, stamped: regexp.MustCompile(`^` + regexp.QuoteMeta(name) + `-\d{4}(-\d\d){5}\.pem$`)}
}

// CurrentFile is the path that always leads to the pair in use.
func (s *Store) CurrentFile() string { return s.path(s.name + "-current.pem") }

func (s *Store) path(file string) string { return filepath.Join(s.dir, file) }

// Current returns the pair in use, whether it has expired or not. ErrNone: there
// is none.
func (s *Store) Current() (Pair, error) {
	file := s.CurrentFile()
	data, info, err := regularfile.ReadAll(file, maxSize)
	if errors.Is(err, fs.ErrNotExist) {
		// Upstream's kubelet takes the link away before it puts the next in place.
		file = s.path(s.name + "-updated.pem")
		data, info, err = regularfile.ReadAll(file, maxSize)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return Pair{}, fmt.Errorf("%s: %w", s.CurrentFile(), ErrNone)
	}
	if err != nil {
		return Pair{}, fmt.Errorf("read certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(data, data)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate with key in %s: %w", file, err)
	}
	return Pair{&pair, info.ModTime()}, nil
}

// Put makes a certificate with its chain, and its key, both PEM, the pair in use,
// and removes the key that was kept for its request.
func (s *Store) Put(cert, key []byte) (Pair, error) {
	data := slices.Concat(onlyCertificates(cert), key)
	if _, err := tls.X509KeyPair(data, data); err != nil {
		return Pair{}, fmt.Errorf("the certificate that was issued: %w", err)
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return Pair{}, fmt.Errorf("folder of certificates: %w", err)
	}
	file := s.name + "-" + time.Now().Format(stamp) + ".pem"
	if err := atomicfile.Write(s.path(file), data, 0o600); err != nil {
		return Pair{}, err
	}
	if err := s.link(file); err != nil {
		return Pair{}, err
	}
	pair, err := s.Current()
	return pair, errors.Join(err, s.DropKey(), s.clean(file))
}

// onlyCertificates leaves out what a signer wrote between certificates.
func onlyCertificates(data []byte) []byte {
	var out []byte
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return out
		}
		if block.Type == "CERTIFICATE" {
			out = append(out, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
		}
	}
}

// link has CurrentFile lead to a file of the folder, at once: there is no moment
// at which it leads nowhere.
func (s *Store) link(file string) error {
	next := s.path(s.name + "-updated.pem")
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) { // of somebody who died
		return fmt.Errorf("put the certificate to use: %w", err)
	}
	err := os.Symlink(file, next)
	if err == nil {
		err = os.Rename(next, s.CurrentFile())
	}
	if err != nil {
		return fmt.Errorf("put the certificate to use: %w", err)
	}
	return s.sync()
}

func (s *Store) sync() error {
	dir, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// clean removes old pairs.
func (s *Store) clean(current string) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("remove old certificates: %w", err)
	}
	var pairs []string // oldest first, without the current one
	for _, e := range entries {
		if name := e.Name(); s.stamped.MatchString(name) && name != current {
			pairs = append(pairs, name)
		}
	}
	var errs []error
	for _, name := range pairs[:max(0, len(pairs)-kept+1)] {
		errs = append(errs, os.Remove(s.path(name)))
	}
	return errors.Join(errs...)
}

// Clear takes the pair out of use. Its file stays.
func (s *Store) Clear() error {
	for _, file := range []string{s.CurrentFile(), s.path(s.name + "-updated.pem")} {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("take the certificate out of use: %w", err)
		}
	}
	return nil
}

// A Key is one that a certificate is being asked for.
type Key struct {
	crypto.Signer
	PEM []byte
}

func (s *Store) keyFile() string { return s.path(s.name + ".key.tmp") }

// Key returns the key of the request that is under way, and makes one if there is
// none: ECDSA on P-256, as upstream's. It is on disk before it is returned, so that
// whoever comes after a crash can go on with the same request.
func (s *Store) Key() (Key, error) {
	data, _, err := regularfile.ReadAll(s.keyFile(), maxSize)
	if err == nil {
		if key, err := parseKey(data); err == nil {
			return key, nil
		} // one that is damaged is of no use to anybody
	} else if !errors.Is(err, fs.ErrNotExist) {
		return Key{}, fmt.Errorf("read the key of a certificate request: %w", err)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return Key{}, fmt.Errorf("encode a key: %w", err)
	}
	key := Key{private, pem.EncodeToMemory(&pem.Block{Type: keyutil.ECPrivateKeyBlockType, Bytes: der})}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return Key{}, fmt.Errorf("folder of certificates: %w", err)
	}
	return key, atomicfile.Write(s.keyFile(), key.PEM, 0o600)
}

func parseKey(data []byte) (Key, error) {
	private, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return Key{}, err
	}
	signer, ok := private.(crypto.Signer)
	if !ok {
		return Key{}, fmt.Errorf("a key of type %T cannot sign", private)
	}
	return Key{signer, data}, nil
}

// DropKey forgets the key of the request that is under way: the next one gets
// another.
func (s *Store) DropKey() error {
	if err := os.Remove(s.keyFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the key of a certificate request: %w", err)
	}
	return nil
}
