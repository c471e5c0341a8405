package manifesturl

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// A Source says where documents are asked for, and how. The JSON names are those
// of the section `manifestURL` of a node's configuration. Files are read again
// at each request, so that what is in them may be rotated.
type Source struct {
	// URL is http://, https:// or unix:// with the path of a socket, and after a
	// colon that of the request: unix:///run/pods.sock:/pods. Empty: there is no
	// URL, and nothing else may be set.
	URL string `json:"url,omitempty"`
	// Headers are sent with each request, to the host of URL alone.
	Headers map[string][]string `json:"headers,omitempty"`
	// CAFile holds the authorities, PEM, that may have signed the server's
	// certificate. Default: those of the machine.
	CAFile string `json:"caFile,omitempty"`
	// CertFile and KeyFile hold the client's certificate and its key, PEM.
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	// BearerTokenFile holds a token. It is never sent in the clear to another
	// machine. It need not be there at the start.
	BearerTokenFile string `json:"bearerTokenFile,omitempty"`
	// SignatureKeyFile holds one or more public keys, PEM: Ed25519 or ECDSA on
	// P-256. With it an answer counts only if what stands at URL.sig is its
	// signature by one of them.
	SignatureKeyFile string `json:"signatureKeyFile,omitempty"`
	// Period is the time between two requests, give or take a tenth. Default
	// 20s, as upstream's httpCheckFrequency; at least 1s.
	Period metav1.Duration `json:"period,omitzero"`
	// Timeout is for one request as a whole, its redirects and the signature
	// with it. Default 10s, as upstream's; at least 1s.
	Timeout metav1.Duration `json:"timeout,omitzero"`
	// MaxBytes is how large an answer may be, unpacked. Default, and most, 10Mi.
	MaxBytes *resource.Quantity `json:"maxBytes,omitempty"`
}

// IsSet reports whether there is a URL.
func (s Source) IsSet() bool { return s.URL != "" }

func (s Source) period() time.Duration  { return cmp.Or(s.Period.Duration, 20*time.Second) }
func (s Source) timeout() time.Duration { return cmp.Or(s.Timeout.Duration, 10*time.Second) }

func (s Source) maxBytes() int64 {
	if s.MaxBytes == nil {
		return manifest.MaxFileSize
	}
	return s.MaxBytes.Value()
}

// Absolute returns s with the paths of its files absolute.
func (s Source) Absolute() (Source, error) {
	var errs []error
	for _, file := range []*string{&s.CAFile, &s.CertFile, &s.KeyFile, &s.BearerTokenFile, &s.SignatureKeyFile} {
		if *file == "" {
			continue
		}
		full, err := filepath.Abs(*file)
		*file = full
		errs = append(errs, err)
	}
	return s, errors.Join(errs...)
}

// Address returns the URL as people may see it: without user, password and
// query, any of which may be a secret. It is empty if there is no URL.
func (s Source) Address() string {
	t, err := parseTarget(s.URL)
	switch {
	case !s.IsSet():
		return ""
	case err != nil:
		return "manifest URL"
	default:
		return t.address
	}
}

// Equal reports whether two sources are the same, however they are spelt.
func (s Source) Equal(o Source) bool {
	a, errA := json.Marshal(s)
	b, errB := json.Marshal(o)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// Check returns everything that is wrong with s, each with its field, what is in
// its files included. field is what s is called: "manifestURL".
func (s Source) Check(field string) error {
	if !s.IsSet() {
		return s.checkUnset(field)
	}
	var errs []error
	wrong := func(name, format string, args ...any) {
		errs = append(errs, fmt.Errorf(field+"."+name+": "+format, args...))
	}
	t, err := parseTarget(s.URL)
	if err != nil {
		wrong("url", "%w", err)
		return errors.Join(errs...) // the rest depends on it
	}
	for name := range s.Headers {
		if why := badHeader(name, s.Headers[name]); why != "" {
			wrong("headers", "%q: %s", name, why)
		}
		if s.BearerTokenFile != "" && strings.EqualFold(name, "Authorization") {
			wrong("headers", "%q: bearerTokenFile sets it, too; leave one of the two out", name)
		}
	}
	if t.url.Scheme != "https" {
		for name, file := range map[string]string{"caFile": s.CAFile, "certFile": s.CertFile, "keyFile": s.KeyFile} {
			if file != "" {
				wrong(name, "it has no meaning with %s: write an https:// URL, or leave it out", t.url.Scheme)
			}
		}
	}
	if (s.CertFile == "") != (s.KeyFile == "") {
		wrong("certFile", "it goes with keyFile: write both, or none")
	}
	if s.BearerTokenFile != "" && t.inTheClear() {
		wrong("bearerTokenFile", "the token would cross the network in the clear: write an https:// URL")
	}
	if len(errs) == 0 {
		if _, err := s.tlsConfig(); err != nil {
			errs = append(errs, fmt.Errorf("%s.%w", field, err))
		}
		if _, err := s.keys(); err != nil {
			errs = append(errs, fmt.Errorf("%s.%w", field, err))
		}
	}
	if s.period() < time.Second {
		wrong("period", "%v is too short: at least 1s", s.period())
	}
	if s.timeout() < time.Second {
		wrong("timeout", "%v is too short: at least 1s", s.timeout())
	}
	if n := s.maxBytes(); n < 1 || n > manifest.MaxFileSize {
		wrong("maxBytes", "%v is not possible: 1 to 10Mi", s.MaxBytes)
	}
	return errors.Join(errs...)
}

// checkUnset refuses what would be ignored.
func (s Source) checkUnset(field string) error {
	if len(s.Headers) == 0 && s.CAFile+s.CertFile+s.KeyFile+s.BearerTokenFile+s.SignatureKeyFile == "" &&
		s.Period.Duration == 0 && s.Timeout.Duration == 0 && s.MaxBytes == nil {
		return nil
	}
	return fmt.Errorf("%s.url: it is missing, and the section has no meaning without it", field)
}

// reserved are the headers that say what a request is, and so are not the
// user's.
var reserved = []string{"Connection", "Content-Length", "If-Modified-Since", "If-None-Match", "Range", "Te", "Trailer", "Transfer-Encoding", "Accept-Encoding"}

func badHeader(name string, values []string) string {
	const token = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	switch {
	case name == "" || strings.Trim(name, token) != "":
		return "it is no name of a header"
	case slices.Contains(reserved, http.CanonicalHeaderKey(name)):
		return "it is set for each request; leave it out"
	case slices.ContainsFunc(values, func(v string) bool { return strings.ContainsAny(v, "\r\n\x00") }):
		return "its value holds a line break"
	default:
		return ""
	}
}

// A target is a URL taken apart.
type target struct {
	url     *url.URL // what is requested; for a socket, of a host "localhost"
	socket  string   // path; "" if there is none
	address string   // for people, without secrets
}

func parseTarget(text string) (target, error) {
	const want = "want https://host/path, http://host/path, or unix:///path/of/socket:/path"
	u, err := url.Parse(text)
	if err != nil {
		// The error repeats the URL, and with it what may be a secret.
		return target{}, errors.New("it is no URL: " + want)
	}
	switch {
	case u.Fragment != "":
		return target{}, errors.New("a part after # is never sent: leave it out")
	case u.Scheme == "unix":
		return parseSocket(u)
	case u.Scheme == "":
		return target{}, errors.New("it has no scheme: " + want)
	case u.Scheme != "http" && u.Scheme != "https":
		return target{}, fmt.Errorf("%q is not possible: %s", u.Scheme, want)
	case u.Hostname() == "":
		return target{}, errors.New("it names no host: " + want)
	}
	u.Host = strings.ToLower(u.Host)
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return target{url: u, address: shown.String()}, nil
}

func parseSocket(u *url.URL) (target, error) {
	socket, path, _ := strings.Cut(u.Path, ":")
	if u.Host != "" || !filepath.IsAbs(socket) || socket == "/" {
		return target{}, errors.New("want unix:// with the whole path of a socket, such as unix:///run/pods.sock:/pods")
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	request := &url.URL{Scheme: "http", Host: "localhost", Path: path, RawQuery: u.RawQuery}
	return target{url: request, socket: socket, address: "unix://" + socket + ":" + path}, nil
}

// inTheClear reports whether a request can be read by others than the server.
func (t target) inTheClear() bool {
	if t.url.Scheme == "https" || t.socket != "" || t.url.Hostname() == "localhost" {
		return false
	}
	ip, err := netip.ParseAddr(t.url.Hostname())
	return err != nil || !ip.IsLoopback()
}

// signature returns where the signature stands: the path and ".sig".
func (t target) signature() target {
	u := *t.url
	u.Path += ".sig"
	if u.RawPath != "" {
		u.RawPath += ".sig"
	}
	t.url = &u
	t.address += ".sig"
	return t
}

// sameOrigin reports whether credentials for t may be sent to u.
func (t target) sameOrigin(u *url.URL) bool {
	return t.url.Scheme == u.Scheme && hostPort(t.url) == hostPort(u)
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
