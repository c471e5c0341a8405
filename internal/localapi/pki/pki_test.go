package pki

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func open(t *testing.T, dir string) *Authority {
	t.Helper()
	return openAt(t, dir, time.Now())
}

// openAt opens an authority whose clock stands still.
func openAt(t *testing.T, dir string, now time.Time) *Authority {
	t.Helper()
	a, err := Open(Config{Dir: dir, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *Authority, r Request) Pair {
	t.Helper()
	leaf, err := a.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	return leaf.Pair()
}

func parse(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatal("no PEM block")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestIssue(t *testing.T) {
	a := open(t, t.TempDir())
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.CertPEM())
	for _, tc := range []struct {
		name  string
		r     Request
		usage x509.ExtKeyUsage
	}{
		{"server", Request{File: "s", User: "kube-apiserver", Names: []string{"localhost", "127.0.0.1", "::1"}}, x509.ExtKeyUsageServerAuth},
		{"client", Request{File: "c", User: "admin", Groups: []string{"system:masters"}}, x509.ExtKeyUsageClientAuth},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cert := parse(t, issue(t, a, tc.r).Cert)
			if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{tc.usage}}); err != nil {
				t.Error(err)
			}
			for _, name := range tc.r.Names {
				if err := cert.VerifyHostname(name); err != nil {
					t.Error(err)
				}
			}
			if got, want := cert.Subject.CommonName, tc.r.User; got != want {
				t.Errorf("user %q, want %q", got, want)
			}
		})
	}
}

// What is kept over a restart, and what is issued again.
func TestReopen(t *testing.T) {
	base := Request{File: "x", User: "u", Groups: []string{"b", "a"}, Names: []string{"one", "10.0.0.1"}}
	with := func(change func(*Request)) Request {
		r := base
		change(&r)
		return r
	}
	for _, tc := range []struct {
		name string
		r    Request
		now  time.Duration
		keep bool
	}{
		{"same", base, 0, true},
		{"fewer names", with(func(r *Request) { r.Names = []string{"one"} }), 0, true},
		{"groups in another order", with(func(r *Request) { r.Groups = []string{"a", "b"} }), 0, true},
		{"another name", with(func(r *Request) { r.Names = []string{"one", "two"} }), 0, false},
		{"another address", with(func(r *Request) { r.Names = []string{"10.0.0.2"} }), 0, false},
		{"another user", with(func(r *Request) { r.User = "v" }), 0, false},
		{"another group", with(func(r *Request) { r.Groups = []string{"a"} }), 0, false},
		{"for a client now", with(func(r *Request) { r.Names = nil }), 0, false},
		{"young", base, DefaultLife*2/3 - time.Hour, true},
		{"old", base, DefaultLife*2/3 + time.Hour, false},
		{"ended long ago", base, 100 * DefaultLife, false},
		{"clock set back", base, -48 * time.Hour, true},
		{"clock of a machine that keeps no time", base, -time.Since(time.Unix(0, 0)), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			first := open(t, dir)
			before := issue(t, first, base)
			a := openAt(t, dir, time.Now().Add(tc.now))
			if got, want := string(a.CertPEM()), string(first.CertPEM()); got != want {
				t.Fatal("the authority changed")
			}
			after := issue(t, a, tc.r)
			if got, want := string(after.Cert) == string(before.Cert), tc.keep; got != want {
				t.Errorf("kept: %v, want %v", got, want)
			}
		})
	}
}

func TestDamage(t *testing.T) {
	for _, tc := range []struct {
		name, file string
		data       []byte // nil: remove
		want       string
	}{
		{"authority garbled", "ca.crt", []byte("x"), "no PEM block"},
		{"authority's key gone", "ca.key", nil, "ca.key"},
		{"authority's key garbled", "ca.key", []byte("x"), "no PEM block"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			open(t, dir)
			file := filepath.Join(dir, tc.file)
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if tc.data != nil {
				if err := os.WriteFile(file, tc.data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Open(Config{Dir: dir})
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "move "+dir+" away") {
				t.Errorf("got %v, want %q and the remedy", err, tc.want)
			}
		})
	}

	t.Run("leaf garbled", func(t *testing.T) {
		dir := t.TempDir()
		a := open(t, dir)
		r := Request{File: "x", User: "u"}
		before := issue(t, a, r)
		if err := os.WriteFile(before.KeyFile, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if after := issue(t, a, r); string(after.Cert) == string(before.Cert) {
			t.Error("a certificate without its key was kept")
		}
	})
}

func TestTokenKeyStays(t *testing.T) {
	dir := t.TempDir()
	first, err := open(t, dir).TokenKey()
	if err != nil {
		t.Fatal(err)
	}
	second, err := open(t, dir).TokenKey()
	if err != nil {
		t.Fatal(err)
	}
	if !first.Equal(second) {
		t.Error("the key changed")
	}
	if err := os.WriteFile(filepath.Join(dir, "sa.key"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, dir).TokenKey(); err == nil {
		t.Error("a damaged key was replaced")
	}
}

func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	a := open(t, dir)
	issue(t, a, Request{File: "x", User: "u"})
	if _, err := a.TokenKey(); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]os.FileMode{
		".": 0o700, "ca.key": 0o600, "x.key": 0o600, "sa.key": 0o600, "ca.crt": 0o644, "x.crt": 0o644,
	} {
		info, err := os.Stat(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s: mode %o, want %o", file, got, want)
		}
	}
}
