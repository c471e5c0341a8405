package manifesturl

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func bytesOf(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }

// packed answers with gzip, without its last bytes.
func packed(body string, cut int) http.HandlerFunc {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(body))
	_ = w.Close()
	return func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			http.Error(w, "gzip is not asked for", http.StatusNotAcceptable)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(b.Bytes()[:b.Len()-cut])
	}
}

func TestGzip(t *testing.T) {
	s := newSite(t, httptest.NewServer)
	s.serve(packed(twoPods, 0))
	follow(t, Source{URL: s.URL}).want("a=1 b=1")
}

// JSON ends where it ends, so that it needs no length.
func TestJSONWithoutLength(t *testing.T) {
	s := newSite(t, httptest.NewServer)
	s.serve(raw("HTTP/1.0 200 OK\r\n\r\n" + podJSON("a", "1")))
	follow(t, Source{URL: s.URL}).want("a=1")
}

func writePEM(t *testing.T, name, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

// TestTLS: an authority of one's own, and an outage of trust in the middle.
func TestTLS(t *testing.T) {
	s := newSite(t, httptest.NewTLSServer)
	s.serve(text(twoPods))
	ca := writePEM(t, "ca.crt", "CERTIFICATE", s.Certificate().Raw)
	good, err := os.ReadFile(ca)
	must(t, err)
	f := follow(t, Source{URL: s.URL, CAFile: ca})
	f.want("a=1 b=1")
	stranger, err := os.ReadFile("testdata/other-ca.crt")
	must(t, err)
	must(t, os.WriteFile(ca, stranger, 0o600)) // files are read at each request
	set := f.want("a=1* b=1* !Unreadable")
	if got := set.Faults[0]; !strings.Contains(got.Message, "certificate") || !strings.Contains(got.Hint, "manifestURL.caFile") {
		t.Errorf("fault: %v", got)
	}
	must(t, os.WriteFile(ca, good, 0o600))
	f.want("a=1 b=1")
	must(t, os.WriteFile(ca, nil, 0o600))
	set = f.want("a=1* b=1* !Unreadable")
	if got := set.Faults[0]; !strings.Contains(got.Message, "caFile: "+ca) {
		t.Errorf("fault: %v", got)
	}
	must(t, os.WriteFile(ca, good, 0o600))
	f.want("a=1 b=1")
}

// TestClientCertificate: the server wants one, and a redirect to another server
// does not get it.
func TestClientCertificate(t *testing.T) {
	var strangers atomic.Int32
	other := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		strangers.Add(int32(len(r.TLS.PeerCertificates)))
		_, _ = w.Write([]byte(pod("c", "1")))
	}))
	defer other.Close()
	s := newSite(t, func(h http.Handler) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
		s.StartTLS()
		return s
	})
	s.serve(text(twoPods))
	// The certificate and key that httptest has for servers do for a client.
	pair := s.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	must(t, err)
	source := Source{URL: s.URL, CAFile: writePEM(t, "ca.crt", "CERTIFICATE", s.Certificate().Raw)}
	follow(t, source).want("!Unreadable ?")
	source.CertFile = writePEM(t, "tls.crt", "CERTIFICATE", pair.Certificate[0])
	source.KeyFile = writePEM(t, "tls.key", "PRIVATE KEY", key)
	f := follow(t, source)
	f.want("a=1 b=1")
	other.TLS.ClientAuth = tls.RequestClientCert
	s.serve(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) })
	f.want("c=1")
	if strangers.Load() != 0 {
		t.Error("the redirect's server saw the client's certificate")
	}
}

func TestUnixSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	listener, err := net.Listen("unix", socket)
	must(t, err)
	s := newSite(t, func(h http.Handler) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		must(t, s.Listener.Close())
		s.Listener = listener
		s.Start()
		return s
	})
	s.serve(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/pods":
			http.Redirect(w, r, "/elsewhere?x=1", http.StatusFound)
		case "/elsewhere":
			_, _ = w.Write([]byte(twoPods))
		}
	})
	f := follow(t, Source{URL: "unix://" + socket + ":/pods"})
	set := f.want("a=1 b=1")
	if got, want := set.Documents[0].File, "unix://"+socket+":/pods"; got != want {
		t.Errorf("file: got %s, want %s", got, want)
	}
	s.serve(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
	})
	f.faulty("a redirect leads away from the socket, to 192.0.2.1")
	s.Close()
	f.faulty("socket")
}

// TestCredentials: what is sent to the URL's own host, and to no other.
func TestCredentials(t *testing.T) {
	got := make(chan http.Header, 1)
	record := func(w http.ResponseWriter, r *http.Request) {
		header := r.Header.Clone()
		header.Set("Host", r.Host)
		select {
		case got <- header:
		default:
		}
		_, _ = w.Write([]byte(twoPods))
	}
	other := httptest.NewServer(http.HandlerFunc(record))
	defer other.Close()
	s := newSite(t, httptest.NewServer)
	s.serve(record)
	token := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(token, []byte("one\n"), 0o600))
	source := Source{
		URL: s.URL, BearerTokenFile: token,
		Headers: map[string][]string{"X-Secret": {"a", "b"}, "host": {"pods.example"}},
	}
	f := follow(t, source)
	pick := func(h http.Header) map[string][]string {
		return map[string][]string{"secret": h["X-Secret"], "auth": h["Authorization"], "host": h["Host"]}
	}
	want := map[string][]string{"secret": {"a", "b"}, "auth": {"Bearer one"}, "host": {"pods.example"}}
	if diff := cmp.Diff(pick(<-got), want); diff != "" {
		t.Errorf("headers (-got +want):\n%s", diff)
	}
	must(t, os.WriteFile(token, []byte("two"), 0o600))
	for (<-got).Get("Authorization") != "Bearer two" { // it is read again
	}

	s.serve(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	var elsewhere http.Header
	for elsewhere = <-got; elsewhere.Get("Host") == "pods.example"; elsewhere = <-got {
	}
	want = map[string][]string{"secret": nil, "auth": nil, "host": {strings.TrimPrefix(other.URL, "http://")}}
	if diff := cmp.Diff(pick(elsewhere), want); diff != "" {
		t.Errorf("headers at the redirect's host (-got +want):\n%s", diff)
	}
	must(t, os.Remove(token))
	f.faulty("bearerTokenFile: open " + token)
	must(t, os.WriteFile(token, nil, 0o600))
	f.faulty("bearerTokenFile: " + token + " is empty")
}

func TestUserInURL(t *testing.T) {
	s := newSite(t, httptest.NewServer)
	s.serve(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(twoPods))
	})
	f := follow(t, Source{URL: strings.Replace(s.URL, "http://", "http://me:secret@", 1)})
	if set := f.want("a=1 b=1"); set.Documents[0].File != s.URL {
		t.Errorf("file: got %s, want %s", set.Documents[0].File, s.URL)
	}
}

func TestRedirectToPlain(t *testing.T) {
	plain := httptest.NewServer(text(twoPods))
	defer plain.Close()
	s := newSite(t, httptest.NewTLSServer)
	s.serve(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, plain.URL, http.StatusFound) })
	f := follow(t, Source{URL: s.URL, CAFile: writePEM(t, "ca.crt", "CERTIFICATE", s.Certificate().Raw)})
	f.faulty("a redirect leads from https to http")
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "-3": 0, "soon": 0, "999999999999": longestWait, "86400": longestWait,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Fri, 02 Jan 2026 03:00:00 GMT": 0, "Fri, 02 Jan 2099 03:00:00 GMT": longestWait,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	empty, key := file("empty", ""), file("key", "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n")
	for name, test := range map[string]struct {
		source Source
		want   string // a part; "" for none
	}{
		"none":                   {Source{}, ""},
		"plain":                  {Source{URL: "http://10.0.0.1/pods"}, ""},
		"socket":                 {Source{URL: "unix:///run/x.sock:/pods"}, ""},
		"settings without a URL": {Source{Timeout: metav1.Duration{Duration: time.Second}}, "manifestURL.url: it is missing"},
		"no URL":                 {Source{URL: "http://us er:secret@h/"}, "manifestURL.url: it is no URL: want https://host/path"},
		"no scheme":              {Source{URL: "pods.example/x"}, `manifestURL.url: it has no scheme: want https://host/path`},
		"another scheme":         {Source{URL: "ftp://h/x"}, `manifestURL.url: "ftp" is not possible`},
		"no host":                {Source{URL: "https:///x"}, "manifestURL.url: it names no host"},
		"a fragment":             {Source{URL: "https://h/x#y"}, "manifestURL.url: a part after #"},
		"no socket":              {Source{URL: "unix://run/x.sock"}, "manifestURL.url: want unix:// with the whole path"},
		"a header's name":        {Source{URL: "https://h", Headers: map[string][]string{"a b": nil}}, `manifestURL.headers: "a b": it is no name of a header`},
		"a header's value":       {Source{URL: "https://h", Headers: map[string][]string{"a": {"b\r\nc: d"}}}, "a line break"},
		"a header of ours":       {Source{URL: "https://h", Headers: map[string][]string{"if-none-match": {"x"}}}, "it is set for each request"},
		"two authorizations":     {Source{URL: "https://h", BearerTokenFile: "/x", Headers: map[string][]string{"authorization": {"x"}}}, "leave one of the two out"},
		"a CA without TLS":       {Source{URL: "http://h", CAFile: empty}, "manifestURL.caFile: it has no meaning with http"},
		"no such CA":             {Source{URL: "https://h", CAFile: dir + "/none"}, "manifestURL.caFile: open " + dir + "/none: no such file"},
		"an empty CA":            {Source{URL: "https://h", CAFile: empty}, "holds no certificate in PEM"},
		"a certificate alone":    {Source{URL: "https://h", CertFile: empty}, "manifestURL.certFile: it goes with keyFile"},
		"an empty pair":          {Source{URL: "https://h", CertFile: empty, KeyFile: empty}, "manifestURL.certFile, keyFile: "},
		"a token in the clear":   {Source{URL: "http://h", BearerTokenFile: "/x"}, "manifestURL.bearerTokenFile: the token would cross the network in the clear"},
		"a token on loopback":    {Source{URL: "http://127.0.0.1:80", BearerTokenFile: "/x"}, ""},
		"a token that will come": {Source{URL: "https://h", BearerTokenFile: dir + "/none"}, ""},
		"no such key":            {Source{URL: "http://h", SignatureKeyFile: dir + "/none"}, "manifestURL.signatureKeyFile: open"},
		"an empty key":           {Source{URL: "http://h", SignatureKeyFile: empty}, "holds no public key"},
		"a private key":          {Source{URL: "http://h", SignatureKeyFile: key}, "it holds a EC PRIVATE KEY: want PUBLIC KEY"},
		"a short period":         {Source{URL: "http://h", Period: metav1.Duration{Duration: time.Millisecond}}, "manifestURL.period: 1ms is too short"},
		"a negative timeout":     {Source{URL: "http://h", Timeout: metav1.Duration{Duration: -1}}, "manifestURL.timeout: -1ns is too short"},
		"too many bytes":         {Source{URL: "http://h", MaxBytes: bytesOf(11 << 20)}, "manifestURL.maxBytes: 11Mi is not possible"},
		"no bytes":               {Source{URL: "http://h", MaxBytes: bytesOf(0)}, "manifestURL.maxBytes: 0 is not possible"},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.source.Check("manifestURL")
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("a secret in: %v", err)
			}
		})
	}
}

func TestAddress(t *testing.T) {
	for url, want := range map[string]string{
		"https://me:pw@Pods.Example/x/y.yaml?token=1": "https://pods.example/x/y.yaml",
		"unix:///run/x.sock":                          "unix:///run/x.sock:/",
		"unix:///run/x.sock:/pods?a=b":                "unix:///run/x.sock:/pods",
		"https://[::1]:8443":                          "https://[::1]:8443",
		":":                                           "manifest URL",
	} {
		if got := (Source{URL: url}).Address(); got != want {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
}
