// Package pki keeps the certificates and keys of one Holdfast instance.
//
// It reads and writes one folder (mode 0700): ca.crt and ca.key, the
// authority that everything else is signed by; sa.key, which signs service
// account tokens; and one NAME.crt and NAME.key for each certificate asked
// for. Keys are mode 0600. A file that is there and still good is kept, so
// that a kubeconfig that was copied away goes on working; a certificate that
// lacks a name, or has used up most of its life, is issued again.
//
// A folder belongs to one process. An Authority's methods are not safe for
// concurrent use.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
)

const (
	// caLife outlives the machine: renewing an authority breaks every
	// kubeconfig and every pod that trusts it.
	caLife = 30 * 365 * 24 * time.Hour
	// leafLife is long because an appliance may run for years without a
	// restart, and a restart is when a certificate is renewed.
	leafLife = 10 * 365 * 24 * time.Hour
	// renewBefore is what must be left of a certificate's life at a start.
	renewBefore = 5 * 365 * 24 * time.Hour
	// backdate covers clients whose clock is a little behind.
	backdate = time.Hour
)

// An Authority signs certificates and keeps them in its folder.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
	now  func() time.Time
}

// Open reads the authority in dir, or makes a new one where there is none.
func Open(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the certificate folder: %w", err)
	}
	a := &Authority{dir: dir, now: time.Now}
	cert, key, err := a.load("ca")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return a, a.create()
	case err != nil:
		return nil, fmt.Errorf("%w (to start with a new authority, move %s away; every kubeconfig must then be fetched again)", err, dir)
	}
	a.cert, a.key, a.pem = cert, key, encode("CERTIFICATE", cert.Raw)
	return a, nil
}

// create makes the authority's own key and certificate.
func (a *Authority) create() error {
	key, err := newKey()
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "holdfast"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	if err := a.stamp(template, caLife); err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fmt.Errorf("sign the authority's certificate: %w", err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return fmt.Errorf("read back the authority's certificate: %w", err)
	}
	a.key, a.pem = key, encode("CERTIFICATE", der)
	return a.save("ca", a.pem, key)
}

// CertPEM returns the authority's certificate.
func (a *Authority) CertPEM() []byte { return a.pem }

// CertFile returns where the authority's certificate is.
func (a *Authority) CertFile() string { return a.path("ca.crt") }

// TokenKey returns the key that signs service account tokens, and makes it
// where there is none. A new key would log every pod out, so a damaged one is
// an error.
func (a *Authority) TokenKey() (*ecdsa.PrivateKey, error) {
	key, err := readKey(a.path("sa.key"))
	if errors.Is(err, fs.ErrNotExist) {
		if key, err = newKey(); err != nil {
			return nil, err
		}
		return key, a.saveKey("sa", key)
	}
	return key, err
}

// stamp gives a template its serial number and its dates.
func (a *Authority) stamp(template *x509.Certificate, life time.Duration) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return fmt.Errorf("draw a serial number: %w", err)
	}
	now := a.now()
	template.SerialNumber = serial
	template.NotBefore = now.Add(-backdate)
	template.NotAfter = now.Add(life)
	if a.cert != nil && template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	return nil
}

func (a *Authority) path(name string) string { return filepath.Join(a.dir, name) }

// load reads NAME.crt and NAME.key. The error is fs.ErrNotExist only if the
// certificate is missing: a certificate without its key is damage.
func (a *Authority) load(name string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certFile := a.path(name + ".crt")
	data, err := os.ReadFile(certFile)
	if err != nil {
		return nil, nil, fmt.Errorf("read certificate: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, nil, fmt.Errorf("read certificate %s: no PEM block", certFile)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("read certificate %s: %w", certFile, err)
	}
	key, err := readKey(a.path(name + ".key"))
	if err != nil {
		return nil, nil, fmt.Errorf("key of %s: %w", certFile, notMissing(err))
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, nil, fmt.Errorf("certificate %s and its key do not belong together", certFile)
	}
	return cert, key, nil
}

// notMissing hides that err is fs.ErrNotExist.
func notMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New(err.Error())
	}
	return err
}

// save writes the key first: a certificate on disk promises its key.
func (a *Authority) save(name string, certPEM []byte, key *ecdsa.PrivateKey) error {
	if err := a.saveKey(name, key); err != nil {
		return err
	}
	return atomicfile.Write(a.path(name+".crt"), certPEM, 0o644)
}

func (a *Authority) saveKey(name string, key *ecdsa.PrivateKey) error {
	data, err := encodeKey(key)
	if err != nil {
		return err
	}
	return atomicfile.Write(a.path(name+".key"), data, 0o600)
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return encode("EC PRIVATE KEY", der), nil
}

func readKey(file string) (*ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("read key %s: no PEM block", file)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read key %s: %w", file, err)
	}
	return key, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
