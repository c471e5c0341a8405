package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
)

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
