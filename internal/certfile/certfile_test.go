package certfile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// issue makes a certificate of its own authority.
func issue(t *testing.T, name string) (cert, key []byte, parsed *x509.Certificate) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	if parsed, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), parsed
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestPair follows a pair through what becomes of its files.
func TestPair(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	oneCert, oneKey, _ := issue(t, "one")
	twoCert, twoKey, _ := issue(t, "two")
	var told []string
	p := NewPair(certFile, keyFile, func(err error) {
		if err == nil {
			told = append(told, "good")
		} else {
			told = append(told, err.Error())
		}
	})
	for _, step := range []struct {
		name string
		do   func()
		want string // whose certificate; "": none
		err  string // part of it; "": none
		told int    // how often, in all
	}{
		{"no files", func() {}, "", "tls.crt: no such file", 1},
		{"still none", func() {}, "", "tls.key: no such file", 1},
		{"both", func() { write(t, certFile, oneCert); write(t, keyFile, oneKey) }, "one", "", 2},
		{"the same", func() { write(t, certFile, oneCert) }, "one", "", 2},
		{"half of the next", func() { write(t, certFile, twoCert) }, "one", "private key does not match public key", 3},
		{"all of it", func() { write(t, keyFile, twoKey) }, "two", "", 4},
		{"cut off", func() { write(t, keyFile, twoKey[:20]) }, "two", "failed to find any PEM data in key", 5},
		{"the one before", func() { write(t, keyFile, twoKey) }, "two", "", 6},
		{"gone", func() { _ = os.Remove(keyFile) }, "two", "no such file", 7},
		{"a folder", func() { _ = os.Mkdir(keyFile, 0o700) }, "two", "is not a regular file", 8},
		{"too long", func() { _ = os.Remove(keyFile); write(t, keyFile, make([]byte, maxSize+1)) }, "two", "more than", 9},
	} {
		step.do()
		got, err := p.Certificate(), p.Err()
		name := ""
		if got != nil {
			name = got.Leaf.Subject.CommonName
		}
		if name != step.want || (err == nil) != (step.err == "") || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("%s: got the certificate of %q and %v, want that of %q and %q", step.name, name, err, step.want, step.err)
		}
		if len(told) != step.told {
			t.Errorf("%s: told %d times, want %d: %q", step.name, len(told), step.told, told)
		}
	}
}

// TestNotReadAgain checks that files that nobody has written lately are not read
// for each that asks.
func TestNotReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	onePEM, _, _ := issue(t, "one")
	twoPEM, _, _ := issue(t, "two")
	write(t, file, onePEM)
	p := NewPool(file, nil, nil)
	p.files.coarse = 0
	first := p.Authorities()
	p.files.content = [][]byte{twoPEM} // what is read would be news
	if p.Authorities() != first {
		t.Error("the file was read again, though it had not changed")
	}
	write(t, file, append(onePEM, twoPEM...))
	if p.Authorities() == first {
		t.Error("the file has changed and was not read again")
	}
}

func TestPool(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	ownPEM, _, own := issue(t, "own")
	onePEM, _, one := issue(t, "one")
	twoPEM, _, two := issue(t, "two")
	p := NewPool(file, ownPEM, nil)
	for _, step := range []struct {
		name  string
		do    func()
		known []*x509.Certificate
		err   string
	}{
		{"no file", func() {}, []*x509.Certificate{own}, "no such file"},
		{"one", func() { write(t, file, onePEM) }, []*x509.Certificate{own, one}, ""},
		{"nothing in it", func() { write(t, file, []byte("soon\n")) }, []*x509.Certificate{own, one}, "no certificate in PEM"},
		{"another", func() { write(t, file, twoPEM) }, []*x509.Certificate{own, two}, ""},
		{"both", func() { write(t, file, append(onePEM, twoPEM...)) }, []*x509.Certificate{own, one, two}, ""},
	} {
		step.do()
		got, err := p.Authorities(), p.Err()
		want := x509.NewCertPool()
		for _, c := range step.known {
			want.AddCert(c)
		}
		if !got.Equal(want) || (err == nil) != (step.err == "") || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("%s: got %v, the wanted authorities: %v, want %q", step.name, err, got.Equal(want), step.err)
		}
	}
}
