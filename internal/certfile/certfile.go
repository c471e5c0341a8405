// Package certfile holds certificates that somebody else keeps in files, and
// takes up new ones without a restart: whoever asks gets what the files hold
// then. Files that are broken, half written or gone change nothing that was
// good before; Err says so.
//
// Nothing runs beside the callers. All methods may be called from any goroutine.
package certfile

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/regularfile"
)

// maxSize is how many bytes a file of certificates may have: more than the
// bundles of all public authorities have.
const maxSize = 4 << 20

// coarse is for how long a file that was written may be written again without
// another time of change: file systems count that coarsely.
const coarse = 2 * time.Second

// A Pair is a certificate with its chain, and its key, in two files of PEM.
type Pair struct{ files files[*tls.Certificate] }

// NewPair returns the pair in two files, which need not be there yet. told is
// called, one call at a time, when a new pair is taken up, and with why not when
// that is news; nil: nobody is told.
func NewPair(certFile, keyFile string, told func(error)) *Pair {
	return &Pair{files[*tls.Certificate]{names: []string{certFile, keyFile}, coarse: coarse, told: told, parse: func(content [][]byte) (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(content[0], content[1])
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", certFile, keyFile, err)
		}
		return &pair, nil
	}}}
}

// Certificate returns the newest pair that was good, or nil if there was none.
// Nobody may change it.
func (p *Pair) Certificate() *tls.Certificate {
	pair, _ := p.files.get()
	return pair
}

// Err says why the pair is not what the files hold now; nil: it is.
func (p *Pair) Err() error {
	_, err := p.files.get()
	return err
}

// A Pool is a set of authorities, in one file of PEM.
type Pool struct{ files files[*x509.CertPool] }

// NewPool returns the pool of the authorities in a file, which need not be there
// yet, and of those in more, PEM too, which are in it whatever the file holds.
// told is as of NewPair.
func NewPool(file string, more []byte, told func(error)) *Pool {
	always := x509.NewCertPool()
	always.AppendCertsFromPEM(more)
	return &Pool{files[*x509.CertPool]{names: []string{file}, coarse: coarse, last: always, told: told, parse: func(content [][]byte) (*x509.CertPool, error) {
		pool := always.Clone()
		if !pool.AppendCertsFromPEM(content[0]) {
			return nil, fmt.Errorf("authorities in %s: there is no certificate in PEM in it", file)
		}
		return pool, nil
	}}}
}

// Authorities returns the newest set that was good. Nobody may change it.
func (p *Pool) Authorities() *x509.CertPool {
	pool, _ := p.files.get()
	return pool
}

// Err says why the set is not what the file holds now; nil: it is.
func (p *Pool) Err() error {
	_, err := p.files.get()
	return err
}

// files are what a T is made of.
type files[T any] struct {
	names  []string
	coarse time.Duration
	parse  func(content [][]byte) (T, error)
	told   func(error)

	mu      sync.Mutex
	last    T        // the newest good one
	content [][]byte // that it was made of; nil: of none
	err     error
	stamps  []stamp // as of the last reading
}

// A stamp tells one content of a file from another, without reading it. The zero
// stamp is of a file that is not there.
type stamp struct {
	inode   uint64
	size    int64
	changed time.Time
	fresh   bool // it may be written again and have the same stamp
}

func stampOf(name string, coarse time.Duration) stamp {
	var s unix.Stat_t
	if unix.Stat(name, &s) != nil {
		return stamp{}
	}
	changed := time.Unix(s.Ctim.Unix())
	return stamp{inode: s.Ino, size: s.Size, changed: changed, fresh: time.Since(changed).Abs() < coarse}
}

func (f *files[T]) get() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	stamps := make([]stamp, len(f.names))
	for i, name := range f.names {
		stamps[i] = stampOf(name, f.coarse)
	}
	fresh := slices.ContainsFunc(stamps, func(s stamp) bool { return s.fresh })
	// What could not be read may be readable now though no file has changed.
	if f.err != nil || f.content == nil || fresh || !slices.Equal(stamps, f.stamps) {
		f.stamps = stamps
		f.take()
	}
	return f.last, f.err
}

// take takes up what the files hold, if that is good and new.
func (f *files[T]) take() {
	content, err := f.read()
	if err == nil && f.err == nil && f.content != nil && slices.EqualFunc(content, f.content, bytes.Equal) {
		return
	}
	next := f.last
	if err == nil {
		next, err = f.parse(content)
	}
	news := err == nil || f.err == nil || f.err.Error() != err.Error()
	if f.err = err; err == nil {
		f.last, f.content = next, content
	}
	if news && f.told != nil {
		f.told(err)
	}
}

func (f *files[T]) read() ([][]byte, error) {
	content := make([][]byte, len(f.names))
	var errs []error
	for i, name := range f.names {
		data, _, err := regularfile.ReadAll(name, maxSize)
		content[i] = data
		errs = append(errs, err)
	}
	return content, errors.Join(errs...)
}
