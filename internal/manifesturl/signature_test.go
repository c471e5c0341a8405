package manifesturl

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// A signer signs as openssl and cosign do.
type signer interface{ crypto.Signer }

func newKey(t *testing.T, kind string) signer {
	t.Helper()
	var key signer
	var err error
	if kind == "ed25519" {
		_, key, err = ed25519.GenerateKey(rand.Reader)
	} else {
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	must(t, err)
	return key
}

func sign(t *testing.T, key signer, text string) []byte {
	t.Helper()
	message, opts := []byte(text), crypto.Hash(0)
	if _, ok := key.(*ecdsa.PrivateKey); ok {
		sum := sha256.Sum256(message)
		message, opts = sum[:], crypto.SHA256
	}
	sig, err := key.Sign(rand.Reader, message, opts)
	must(t, err)
	return sig
}

func public(t *testing.T, keys ...crypto.PublicKey) []byte {
	t.Helper()
	var all []byte
	for _, key := range keys {
		der, err := x509.MarshalPKIXPublicKey(key)
		must(t, err)
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...)
	}
	return all
}

// signedSite serves a body at /pods and a signature at /pods.sig.
func signedSite(t *testing.T) (s *site, put func(body string, signature []byte)) {
	s = newSite(t, httptest.NewServer)
	type both struct {
		body      string
		signature []byte
	}
	var now atomic.Pointer[both]
	s.serve(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/pods":
			_, _ = w.Write([]byte(now.Load().body))
		case "/pods.sig":
			if now.Load().signature == nil {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			_, _ = w.Write(now.Load().signature)
		}
	})
	return s, func(body string, signature []byte) { now.Store(&both{body, signature}) }
}

func TestSignature(t *testing.T) {
	for _, kind := range []string{"ed25519", "p256"} {
		t.Run(kind, func(t *testing.T) {
			key, other := newKey(t, kind), newKey(t, kind)
			file := filepath.Join(t.TempDir(), "key.pub")
			must(t, os.WriteFile(file, public(t, newKey(t, "p256").Public(), key.Public()), 0o600))
			s, put := signedSite(t)
			put(twoPods, sign(t, key, twoPods))
			f := follow(t, Source{URL: s.URL + "/pods?x=1", SignatureKeyFile: file})
			f.want("a=1 b=1")
			news := pod("c", "1")
			put(news, nil)
			f.faulty("the signature " + s.URL + "/pods.sig: the server answers 404 Not Found")
			put(news, sign(t, key, twoPods)) // between two requests one of the two changed
			f.faulty("the signature is not that of this document")
			put(news, sign(t, other, news))
			f.faulty("the signature is not that of this document")
			put(news, []byte("\n"))
			f.faulty("the answer is empty")
			put(news, []byte(strings.Repeat("A", maxSignature+1)))
			f.faulty("larger than")
			if set := f.lost("a", "b"); set != "" {
				t.Errorf("published %q", set)
			}
			put(news, []byte(base64.StdEncoding.EncodeToString(sign(t, key, news))+"\n"))
			f.want("c=1")
			must(t, os.WriteFile(file, public(t, other.Public()), 0o600)) // another key from now on
			f.want("c=1* !Unreadable")
			put(news, sign(t, other, news))
			f.want("c=1")
		})
	}
}

// TestOpenSSL verifies what the commands of the documentation make.
func TestOpenSSL(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Log("no openssl here: its signatures are those of TestSignature")
		return
	}
	dir := t.TempDir()
	run := func(args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "openssl", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("openssl %v: %v\n%s", args, err, out)
		}
		sig, err := os.ReadFile(filepath.Join(dir, "doc.sig"))
		if err != nil {
			return nil
		}
		return sig
	}
	must(t, os.WriteFile(filepath.Join(dir, "doc"), []byte(twoPods), 0o600))
	for kind, commands := range map[string][][]string{
		"ed25519": {{"genpkey", "-algorithm", "ED25519", "-out", "k"}, {"pkeyutl", "-sign", "-rawin", "-inkey", "k", "-in", "doc", "-out", "doc.sig"}},
		"p256":    {{"ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", "k"}, {"dgst", "-sha256", "-sign", "k", "-out", "doc.sig", "doc"}},
	} {
		run(commands[0]...)
		run("pkey", "-in", "k", "-pubout", "-out", "k.pub")
		sig := run(commands[1]...)
		data, err := os.ReadFile(filepath.Join(dir, "k.pub"))
		must(t, err)
		ks, err := parseKeys(data)
		must(t, err)
		if err := ks.verify([]byte(twoPods), sig); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if err := ks.verify([]byte(twoPods+" "), sig); err == nil {
			t.Errorf("%s: another document passed", kind)
		}
	}
}

func TestParseKeys(t *testing.T) {
	big, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	must(t, err)
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"RSA":        {public(t, big.Public()), "want ECDSA on P-256, or Ed25519"},
		"P-384":      {public(t, p384.Public()), "a key on P-384 is not possible"},
		"not a key":  {[]byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"), "asn1"},
		"two others": {public(t, newKey(t, "p256").Public(), p384.Public()), "P-384"},
	} {
		if _, err := parseKeys(test.data); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q in it", name, err, test.want)
		}
	}
}

// TestSignedCopy: the last good copy is verified again after a restart.
func TestSignedCopy(t *testing.T) {
	key := newKey(t, "ed25519")
	keyFile := filepath.Join(t.TempDir(), "key.pub")
	good := public(t, key.Public())
	must(t, os.WriteFile(keyFile, good, 0o600))
	s, put := signedSite(t)
	put(twoPods, sign(t, key, twoPods))
	state := filepath.Join(t.TempDir(), "state.json")
	source := Source{URL: s.URL + "/pods", SignatureKeyFile: keyFile}
	f := follow(t, source, withState(state))
	f.want("a=1 b=1")
	// b is from an older answer than a now; both are signed.
	mixed := pod("a", "2") + "---\n" + pod("b", "")
	put(mixed, sign(t, key, mixed))
	f.want("a=2 b=1* !Invalid")
	f.stop()
	s.Close()
	saved, err := os.ReadFile(state)
	must(t, err)

	restarted := func() string {
		t.Helper()
		f := follow(t, source, withState(state))
		f.faulty("connection refused")
		f.stop()
		return say(f.sets[0])
	}
	if got, want := restarted(), "a=2* b=1* !Unreadable"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	const nothing = "!Unreadable ?"
	for name, edit := range map[string]func(*stateFile){
		"another image": func(s *stateFile) {
			s.Documents[0].Written = []byte(strings.Replace(string(s.Documents[0].Written), `"image":"2"`, `"image":"evil"`, 1))
		},
		"another answer":  func(s *stateFile) { s.Signed[0].Body = []byte(pod("a", "evil")) },
		"no signature":    func(s *stateFile) { s.Documents[0].Signed = nil },
		"no such answer":  func(s *stateFile) { s.Documents[0].Signed = new(7) },
		"negative":        func(s *stateFile) { s.Documents[0].Signed = new(-1) },
		"not its own":     func(s *stateFile) { s.Documents[0].Signed = s.Documents[1].Signed },
		"everything gone": func(s *stateFile) { s.Documents, s.Signed = nil, nil },
	} {
		var content stateFile
		must(t, json.Unmarshal(saved, &content))
		edit(&content)
		data, err := json.Marshal(content)
		must(t, err)
		must(t, os.WriteFile(state, data, 0o600))
		if got := restarted(); got != nothing {
			t.Errorf("%s: got %s, want %s", name, got, nothing)
		}
	}
	must(t, os.WriteFile(state, saved, 0o600))
	must(t, os.WriteFile(keyFile, public(t, newKey(t, "ed25519").Public()), 0o600))
	if got := restarted(); got != nothing {
		t.Errorf("another key: got %s, want %s", got, nothing)
	}
	must(t, os.WriteFile(keyFile, good, 0o600))
	if got, want := restarted(), "a=2* b=1* !Unreadable"; got != want {
		t.Errorf("the key again: got %s, want %s", got, want)
	}
}

// A key that becomes another makes the node ask for the whole answer once, with
// its new signature.
func TestKeyRotation(t *testing.T) {
	old, key := newKey(t, "p256"), newKey(t, "p256")
	keyFile := filepath.Join(t.TempDir(), "key.pub")
	must(t, os.WriteFile(keyFile, public(t, old.Public()), 0o600))
	s := newSite(t, httptest.NewServer)
	var signature atomic.Pointer[[]byte]
	put := func(sig []byte) { signature.Store(&sig) }
	s.serve(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/.sig":
			_, _ = w.Write(*signature.Load())
		case r.Header.Get("If-None-Match") == "v1":
			w.WriteHeader(http.StatusNotModified)
		default:
			w.Header().Set("ETag", "v1")
			_, _ = w.Write([]byte(twoPods))
		}
	})
	put(sign(t, old, twoPods))
	state := filepath.Join(t.TempDir(), "state.json")
	source := Source{URL: s.URL + "/", SignatureKeyFile: keyFile}
	f := follow(t, source, withState(state))
	f.want("a=1 b=1")
	must(t, os.WriteFile(keyFile, public(t, key.Public()), 0o600))
	f.want("a=1* b=1* !Unreadable")
	put(sign(t, key, twoPods))
	f.want("a=1 b=1")
	f.stop()
	s.Close()
	f = follow(t, source, withState(state))
	f.want("a=1* b=1* !Unreadable")
}
