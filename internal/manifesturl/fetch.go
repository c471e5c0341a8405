package manifesturl

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/version"
)

// maxMessage is how long, in bytes, the text of a failure may be.
const maxMessage = 1 << 10

// maxRedirects is how many redirects one request may follow.
const maxRedirects = 5

// validators say which answer a conditional request is about.
type validators struct {
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
	// Request is a hash of what was asked for, after redirects. To another request
	// "not modified" would be about another document.
	Request string `json:"request,omitempty"`
}

// of returns v if it is about a request, or else nothing.
func (v validators) of(request string) validators {
	if v.Request != request {
		return validators{}
	}
	return v
}

// A response is what the server said, whole and, with a key, verified.
type response struct {
	unchanged  bool // 304: the rest is empty
	body       []byte
	signature  []byte // nil: none is wanted
	validators validators
}

// A failure is why a request brought nothing. Its text is the same each time for
// the same thing, so that it is told once.
type failure struct {
	message, hint string
	wait          time.Duration // what the server asked for; 0: nothing
}

func (f *failure) Error() string { return f.message }

// failed makes a failure. What a server says may be in it, and is cut: logs and
// reports repeat it.
func failed(hint, format string, args ...any) *failure {
	message := fmt.Sprintf(format, args...)
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "..."
	}
	return &failure{message: message, hint: hint}
}

// A client asks one URL.
type client struct {
	source Source
	target target
}

// get asks for the document, and for its signature if there are keys. All errors
// are failures.
func (c *client) get(ctx context.Context, known validators) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.source.timeout())
	defer cancel()
	keys, err := c.source.keys()
	if err != nil {
		return response{}, failed(mendFile, "%v", err)
	}
	r, err := c.request(ctx, c.target, known, c.source.maxBytes())
	if err != nil || r.unchanged || keys == nil {
		return r, err
	}
	sig, err := c.request(ctx, c.target.signature(), validators{}, maxSignature)
	if f, ok := errors.AsType[*failure](err); ok {
		return response{}, &failure{"the signature " + c.target.signature().address + ": " + f.message, f.hint, f.wait}
	}
	if err := keys.verify(r.body, sig.body); err != nil {
		return response{}, failed("sign what is served, and put the signature at "+c.target.signature().address, "%v", err)
	}
	r.signature = sig.body
	return r, nil
}

// request makes one GET and follows its redirects.
func (c *client) request(ctx context.Context, to target, known validators, most int64) (response, error) {
	next := to.url
	for range maxRedirects + 1 {
		id := c.identity(next)
		resp, err := c.hop(ctx, to, next, known.of(id))
		if err != nil {
			return response{}, err
		}
		if !isRedirect(resp.StatusCode) {
			r, err := take(ctx, resp, known.of(id), most)
			if r.validators != (validators{}) {
				r.validators.Request = id
			}
			return r, err
		}
		resp.Body.Close() // its content does not matter
		if next, err = redirected(to, next, resp); err != nil {
			return response{}, err
		}
	}
	return response{}, failed("give the address that it ends at", "more than %d redirects", maxRedirects)
}

// identity is a hash of what an answer depends on: the URL with its query and
// user, and the headers.
func (c *client) identity(next *url.URL) string {
	text := fmt.Appendf(nil, "%q", next)
	for _, name := range slices.Sorted(maps.Keys(c.source.Headers)) {
		text = fmt.Appendf(text, " %q %q", name, c.source.Headers[name])
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// hop makes one request, without a redirect. The connection is not kept: the
// next request is far away, and may have other certificates.
func (c *client) hop(ctx context.Context, to target, next *url.URL, known validators) (*http.Response, error) {
	req, err := c.prepare(ctx, to, next, known)
	if err != nil {
		return nil, err
	}
	transport, err := c.transport(to, to.sameOrigin(next))
	if err != nil {
		return nil, failed(mendFile, "%v", err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, failed(hintOf(err), "%s", describe(ctx, err))
	}
	return resp, nil
}

const mendFile = "mend the file: it is read again at each request"

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// redirected returns where a redirect leads.
func redirected(to target, from *url.URL, resp *http.Response) (*url.URL, error) {
	location, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || resp.Header.Get("Location") == "" {
		return nil, failed("", "the server answers %d without saying where to", resp.StatusCode)
	}
	next := from.ResolveReference(location)
	next.Fragment, next.User = "", nil
	switch {
	case next.Scheme != "http" && next.Scheme != "https" || next.Host == "":
		return nil, failed("", "a redirect leads to no http or https URL")
	case from.Scheme == "https" && next.Scheme == "http":
		return nil, failed("give an https:// URL that is not redirected", "a redirect leads from https to http, on %s", next.Host)
	case to.socket != "" && !to.sameOrigin(next):
		return nil, failed("", "a redirect leads away from the socket, to %s", next.Host)
	}
	if to.sameOrigin(next) {
		next.User = to.url.User
	}
	return next, nil
}

// transport reads the files and makes what carries one request. Only to the host
// of the URL the client shows its certificate.
func (c *client) transport(to target, trusted bool) (*http.Transport, error) {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, DisableKeepAlives: true, MaxResponseHeaderBytes: 256 << 10}
	if to.socket != "" {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", to.socket)
		}
		return t, nil
	}
	var err error
	if t.TLSClientConfig, err = c.source.tlsConfig(); err != nil {
		return nil, err
	}
	if !trusted {
		t.TLSClientConfig.Certificates = nil
	}
	return t, nil
}

// prepare makes the request. What the user wants sent, and who the user is, goes
// to the host of the URL and to no other.
func (c *client) prepare(ctx context.Context, to target, next *url.URL, known validators) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, next.String(), nil)
	if err != nil {
		return nil, failed("", "a request cannot be made of the URL")
	}
	req.Header.Set("User-Agent", "holdfast/"+version.Version)
	req.Header.Set("Accept", "application/yaml, application/json;q=0.9, */*;q=0.5")
	if to.sameOrigin(next) {
		for name, values := range c.source.Headers {
			req.Header[http.CanonicalHeaderKey(name)] = values
		}
		if host := req.Header.Get("Host"); host != "" {
			req.Host = host
			req.Header.Del("Host")
		}
		token, err := c.source.token()
		if err != nil {
			return nil, failed(mendFile, "%v", err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		} else if user := next.User; user != nil && req.Header.Get("Authorization") == "" {
			password, _ := user.Password()
			req.SetBasicAuth(user.Username(), password)
		}
	}
	if known.ETag != "" {
		req.Header.Set("If-None-Match", known.ETag)
	}
	if known.LastModified != "" {
		req.Header.Set("If-Modified-Since", known.LastModified)
	}
	return req, nil
}

// take takes an answer in, or says why it is none.
func take(ctx context.Context, resp *http.Response, known validators, most int64) (response, error) {
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && known != (validators{}):
		return response{unchanged: true}, nil
	case resp.StatusCode != http.StatusOK:
		return response{}, refused(resp)
	case resp.ContentLength > most:
		return response{}, tooLarge(most)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if int64(len(body)) > most {
		return response{}, tooLarge(most)
	}
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return response{}, failed("see what the server, or a proxy before it, does", "the answer is cut off")
		}
		return response{}, failed(hintOf(err), "%s", describe(ctx, err))
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return response{}, failed("serve an empty list to remove every pod: {apiVersion: v1, kind: List, items: []}", "the answer is empty")
	}
	if endUnknown(resp) && !json.Valid(body) {
		return response{}, failed("have the server send Content-Length, or serve JSON",
			"the answer has no length: YAML that is cut off could not be told from whole")
	}
	return response{body: body, validators: validators{ETag: resp.Header.Get("ETag"), LastModified: resp.Header.Get("Last-Modified")}}, nil
}

// endUnknown reports whether an answer ended because the connection did, so that
// a part of it looks like the whole.
func endUnknown(resp *http.Response) bool {
	return resp.ProtoMajor < 2 && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 && !resp.Uncompressed
}

func tooLarge(most int64) *failure {
	return failed("serve fewer pods, or raise manifestURL.maxBytes", "the answer is larger than %d bytes", most)
}

// refused says what an answer means that is no success.
func refused(resp *http.Response) *failure {
	hint := ""
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		hint = "see headers, bearerTokenFile and certFile of the section manifestURL"
	case http.StatusNotFound:
		hint = "see the path of manifestURL.url"
	}
	text := cmp.Or(http.StatusText(resp.StatusCode), "no known status")
	f := failed(hint, "the server answers %d %s", resp.StatusCode, text)
	f.wait = retryAfter(resp.Header.Get("Retry-After"), time.Now())
	return f
}

// retryAfter reads a number of seconds or a date; 0 if it is neither.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(min(max(seconds, 0), int(longestWait.Seconds()))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), longestWait)
	}
	return 0
}

// describe says what an error of the network is, without what differs from one
// time to the next: ports of ours, the time of day.
func describe(ctx context.Context, err error) string {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "the server's certificate has expired, or is not valid yet"
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return "no such host: " + dns.Name
		}
		return "the address of " + dns.Name + " cannot be looked up"
	}
	if slow, ok := errors.AsType[net.Error](err); errors.Is(ctx.Err(), context.DeadlineExceeded) || ok && slow.Timeout() {
		return "no whole answer in time"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		where := ""
		if op.Op == "dial" && op.Addr != nil {
			where = " to " + op.Addr.String()
		}
		return op.Op + where + ": " + op.Err.Error()
	}
	return err.Error()
}

// hintOf says what to do about an error of the network.
func hintOf(err error) string {
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, host := errors.AsType[x509.HostnameError](err)
	switch {
	case authority:
		return "name the authority of the server's certificate in manifestURL.caFile"
	case host:
		return "give the URL a name that is in the server's certificate"
	default:
		return ""
	}
}
