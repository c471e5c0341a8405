package certstore

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// issue signs a key by itself.
func issue(t *testing.T, key Key, name string) []byte {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key.Signer)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func put(t *testing.T, s *Store, name string) {
	t.Helper()
	key, err := s.Key()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := s.Put(issue(t, key, name), key.PEM)
	if err != nil {
		t.Fatal(err)
	}
	if pair.Leaf.Subject.CommonName != name {
		t.Errorf("in use: %v, want %s", pair.Leaf.Subject, name)
	}
}

func current(t *testing.T, s *Store) string {
	t.Helper()
	pair, err := s.Current()
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf.Subject.CommonName
}

func TestPut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	synctest.Test(t, func(t *testing.T) { // each pair has a time of its own
		s := New(dir, "kubelet-client")
		if _, err := s.Current(); !errors.Is(err, ErrNone) {
			t.Errorf("an empty folder: %v, want ErrNone", err)
		}
		put(t, New(dir, "kubelet-server"), "other")
		for _, name := range []string{"one", "two", "three"} {
			put(t, s, name)
			time.Sleep(time.Second)
		}
		if got := current(t, s); got != "three" {
			t.Errorf("in use: %s", got)
		}
		if got := current(t, New(dir, "kubelet-server")); got != "other" {
			t.Errorf("the other store has %s", got)
		}
		pairs, err := filepath.Glob(filepath.Join(dir, "kubelet-client-2*.pem"))
		if err != nil || len(pairs) != kept {
			t.Errorf("pairs: %q, %v, want %d", pairs, err, kept)
		}
		for _, file := range pairs {
			info, err := os.Stat(file)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", file, info.Mode(), err)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "kubelet-client.key.tmp")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the key of the request: %v, want it gone", err)
		}
		if err := s.Clear(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Current(); !errors.Is(err, ErrNone) {
			t.Errorf("cleared: %v, want ErrNone", err)
		}
	})
}

// A request that is not answered keeps its key over restarts.
func TestKey(t *testing.T) {
	dir := t.TempDir()
	first, err := New(dir, "kubelet-client").Key()
	if err != nil {
		t.Fatal(err)
	}
	again, err := New(dir, "kubelet-client").Key()
	if err != nil || string(again.PEM) != string(first.PEM) {
		t.Errorf("another key after a restart, or %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kubelet-client.key.tmp"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	next, err := New(dir, "kubelet-client").Key()
	if err != nil || string(next.PEM) == string(first.PEM) || !strings.Contains(string(next.PEM), "EC PRIVATE KEY") {
		t.Errorf("after damage: %q, %v", next.PEM, err)
	}
	if err := New(dir, "kubelet-client").DropKey(); err != nil {
		t.Fatal(err)
	}
	if other, err := New(dir, "kubelet-client").Key(); err != nil || string(other.PEM) == string(next.PEM) {
		t.Errorf("the same key after it was dropped, or %v", err)
	}
}

// What the upstream kubelet leaves, wherever it died, is taken up.
func TestUpstreamsFolder(t *testing.T) {
	for name, move := range map[string]func(dir string) error{
		"an absolute link": func(dir string) error {
			target, err := os.Readlink(filepath.Join(dir, "kubelet-client-current.pem"))
			if err != nil {
				return err
			}
			return errors.Join(os.Remove(filepath.Join(dir, "kubelet-client-current.pem")),
				os.Symlink(filepath.Join(dir, target), filepath.Join(dir, "kubelet-client-current.pem")))
		},
		"between two links": func(dir string) error {
			return os.Rename(filepath.Join(dir, "kubelet-client-current.pem"), filepath.Join(dir, "kubelet-client-updated.pem"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, New(dir, "kubelet-client"), "upstream")
			if err := move(dir); err != nil {
				t.Fatal(err)
			}
			s := New(dir, "kubelet-client")
			if got := current(t, s); got != "upstream" {
				t.Errorf("in use: %s", got)
			}
			put(t, s, "ours")
			if got := current(t, s); got != "ours" {
				t.Errorf("in use: %s", got)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	s := New(dir, "kubelet-client")
	key, err := s.Key()
	if err != nil {
		t.Fatal(err)
	}
	other, err := New(t.TempDir(), "kubelet-client").Key()
	if err != nil {
		t.Fatal(err)
	}
	for name, cert := range map[string][]byte{"of another key": issue(t, other, "x"), "no certificate": []byte("?")} {
		if _, err := s.Put(cert, key.PEM); err == nil || !strings.Contains(err.Error(), "that was issued") {
			t.Errorf("Put of a certificate %s: %v", name, err)
		}
	}
	if again, err := s.Key(); err != nil || string(again.PEM) != string(key.PEM) {
		t.Errorf("the key of the request is another, or %v", err)
	}
	if err := os.WriteFile(s.CurrentFile(), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Current(); err == nil || errors.Is(err, ErrNone) || !strings.Contains(err.Error(), s.CurrentFile()) {
		t.Errorf("Current of a damaged file: %v", err)
	}
}
