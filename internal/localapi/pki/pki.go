// Package pki keeps the certificates and keys of one Holdfast instance.
//
// It reads and writes one folder (mode 0700): ca.crt and ca.key, the
// authority that everything else is signed by; sa.key, which signs service
// account tokens; and one NAME.crt and NAME.key for each certificate asked
// for. Keys are mode 0600. A certificate that is there and still good is kept;
// one that lacks a name, or has used up two thirds of its life, is issued
// again: at Issue, and at each call of Renew.
//
// No certificate depends on a good clock. All begin in 1970, where the clock
// of a machine starts that does not keep the time; the authority has no end,
// and the end of the others is counted from Epoch at the earliest.
//
// A folder belongs to one process. An Authority's methods may be called
// concurrently.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
)

// DefaultLife is how long a certificate lives, as kubeadm's.
const DefaultLife = 365 * 24 * time.Hour

var (
	// Epoch is a moment that is past: a clock before it is wrong.
	Epoch = time.Date(2026, time.October, 1, 0, 0, 0, 0, time.UTC)
	// begin is before every moment that a machine's clock can show.
	begin = time.Unix(0, 0).UTC()
	// never is X.509's date for a certificate without an end (RFC 5280, 4.1.2.5).
	never = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)
)

// authorityName is the subject of the authorities that this package makes.
const authorityName = "holdfast"

// A Config says where the certificates are and how long they live.
type Config struct {
	// Dir is the folder. Required.
	Dir string
	// Life is how long an issued certificate lives. When a third of it is left
	// it is issued again. Default: DefaultLife.
	Life time.Duration
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// An Authority signs certificates and keeps them in its folder.
type Authority struct {
	cfg  Config
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte

	mu     sync.Mutex // guards the field below, and writing in the folder
	leaves []*Leaf
}

// Open reads the authority in the folder, or makes a new one where there is
// none. One that an earlier version made with an end gets a new certificate
// without, for the same key: whoever trusts the old one trusts what it signs.
func Open(cfg Config) (*Authority, error) {
	if cfg.Life == 0 {
		cfg.Life = DefaultLife
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the certificate folder: %w", err)
	}
	a := &Authority{cfg: cfg}
	cert, key, err := a.load("ca")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if key, err = newKey(); err != nil {
			return nil, err
		}
		if err := a.sign(key); err != nil {
			return nil, err
		}
		return a, a.save("ca", a.pem, key)
	case err != nil:
		return nil, fmt.Errorf("%w (to start with a new authority, move %s away; every kubeconfig must then be fetched again)", err, cfg.Dir)
	case !cert.IsCA:
		return nil, fmt.Errorf("certificate %s is no authority's (to start with a new one, move %s away)", a.path("ca.crt"), cfg.Dir)
	}
	a.cert, a.key, a.pem = cert, key, encode("CERTIFICATE", cert.Raw)
	if ours(cert) && (cert.NotBefore.After(begin) || cert.NotAfter.Before(never)) {
		if err := a.sign(key); err != nil {
			return nil, err
		}
		return a, atomicfile.Write(a.CertFile(), a.pem, 0o644)
	}
	return a, nil
}

// ours reports whether an authority was made here, not put there by the user.
func ours(cert *x509.Certificate) bool {
	return cert.Subject.String() == (pkix.Name{CommonName: authorityName}).String() && cert.CheckSignatureFrom(cert) == nil
}

// sign makes the authority's own certificate.
func (a *Authority) sign(key *ecdsa.PrivateKey) error {
	serial, err := newSerial()
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial, NotBefore: begin, NotAfter: never,
		Subject:               pkix.Name{CommonName: authorityName},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fmt.Errorf("sign the authority's certificate: %w", err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return fmt.Errorf("read back the authority's certificate: %w", err)
	}
	a.key, a.pem = key, encode("CERTIFICATE", der)
	return nil
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

// ClockErr says that the clock is wrong, and what follows; nil if it may be right.
func (a *Authority) ClockErr() error { return CheckClock(a.cfg.Now()) }

// CheckClock returns an error for a clock that is before Epoch.
func CheckClock(now time.Time) error {
	if !now.Before(Epoch) {
		return nil
	}
	return fmt.Errorf("the clock says %s, which is past: set it; pods run meanwhile, but tokens that are made now end as soon as it is right",
		now.UTC().Format(time.DateTime+" UTC"))
}

// now is the time that certificates are dated by.
func (a *Authority) now() time.Time {
	if now := a.cfg.Now(); now.After(Epoch) {
		return now
	}
	return Epoch
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	return serial, nil
}

func (a *Authority) path(name string) string { return filepath.Join(a.cfg.Dir, name) }
