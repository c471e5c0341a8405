package pki

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"
)

// A Request says whose certificate is wanted.
type Request struct {
	// File is the base name of the two files, such as "apiserver".
	File string
	// User and Groups become the common name and the organizations: who the
	// bearer is to the API.
	User   string
	Groups []string
	// Names are the host names and IP addresses it may serve under. A
	// request with names is for a server, one without is for a client.
	Names []string
	// MoreNames is asked at each Renew for names beside Names: those that
	// change while a program runs. May be nil.
	MoreNames func() []string
}

// A Pair is a certificate and its key, in memory and on disk.
type Pair struct {
	Cert, Key         []byte // PEM
	CertFile, KeyFile string
}

// A Leaf is one certificate that is kept current. Its methods may be called
// concurrently with Renew.
type Leaf struct {
	request Request
	current atomic.Pointer[issued]
}

// issued is what a Leaf is at a moment.
type issued struct {
	pair Pair
	cert *x509.Certificate
	tls  *tls.Certificate
}

// Pair returns the certificate as it is now.
func (l *Leaf) Pair() Pair { return l.current.Load().pair }

// TLS returns the certificate as it is now, for a handshake.
func (l *Leaf) TLS() *tls.Certificate { return l.current.Load().tls }

// Issue returns the certificate that r asks for: the one in the folder if it
// is still good, or a new one. A damaged one is replaced without a word, as
// replacing it costs nobody anything. From then on Renew keeps it current.
func (a *Authority) Issue(r Request) (*Leaf, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	leaf := &Leaf{request: r}
	cert, key, err := a.load(r.File)
	if err != nil || !a.good(cert, r.template()) {
		return leaf, a.replaceLocked(leaf)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return leaf, a.keepLocked(leaf, encode("CERTIFICATE", cert.Raw), keyPEM)
}

// Renew issues every certificate again that is due, and returns the names of
// their files. One that cannot be issued stays as it is.
func (a *Authority) Renew() (renewed []string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, leaf := range a.leaves {
		if a.good(leaf.current.Load().cert, leaf.request.template()) {
			continue
		}
		if err := a.replaceLocked(leaf); err != nil {
			errs = append(errs, err)
			continue
		}
		renewed = append(renewed, leaf.request.File)
	}
	return renewed, errors.Join(errs...)
}

// replaceLocked issues a new certificate, with a new key.
func (a *Authority) replaceLocked(leaf *Leaf) error {
	file, template := leaf.request.File, leaf.request.template()
	key, err := newKey()
	if err != nil {
		return err
	}
	if template.SerialNumber, err = newSerial(); err != nil {
		return err
	}
	template.NotBefore, template.NotAfter = a.cert.NotBefore, a.now().Add(a.cfg.Life)
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("sign certificate %q: %w", file, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return err
	}
	certPEM := encode("CERTIFICATE", der)
	if err := a.save(file, certPEM, key); err != nil {
		return err
	}
	return a.keepLocked(leaf, certPEM, keyPEM)
}

// keepLocked makes a certificate that is on disk the leaf's current one.
func (a *Authority) keepLocked(leaf *Leaf, certPEM, keyPEM []byte) error {
	file := leaf.request.File
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return fmt.Errorf("use certificate %q: %w", file, err)
	}
	leaf.current.Store(&issued{
		pair: Pair{Cert: certPEM, Key: keyPEM, CertFile: a.path(file + ".crt"), KeyFile: a.path(file + ".key")},
		cert: pair.Leaf,
		tls:  &pair,
	})
	if !slices.Contains(a.leaves, leaf) {
		a.leaves = append(a.leaves, leaf)
	}
	return nil
}

// template is the certificate that r asks for, without dates.
func (r Request) template() *x509.Certificate {
	names := slices.Clone(r.Names)
	if r.MoreNames != nil {
		names = append(names, r.MoreNames()...)
	}
	usage := x509.ExtKeyUsageClientAuth
	if len(names) > 0 {
		usage = x509.ExtKeyUsageServerAuth
	}
	t := &x509.Certificate{
		Subject:     pkix.Name{CommonName: r.User, Organization: r.Groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if ip := net.ParseIP(name); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, name)
		}
	}
	return t
}

// good reports whether cert still answers want: signed by us, with enough of
// its life left, the same bearer, and every name in it. One that lives too
// long, from when the clock was ahead, is good: a clock that goes back at each
// start of the machine must not make it end early.
func (a *Authority) good(cert, want *x509.Certificate) bool {
	return !cert.NotBefore.After(a.cert.NotBefore) &&
		(a.now().Before(a.renewal(cert)) || !cert.NotAfter.Before(a.cert.NotAfter)) &&
		bytes.Equal(cert.RawIssuer, a.cert.RawSubject) &&
		cert.CheckSignatureFrom(a.cert) == nil &&
		cert.Subject.CommonName == want.Subject.CommonName &&
		slices.Equal(sorted(cert.Subject.Organization), sorted(want.Subject.Organization)) &&
		slices.Equal(cert.ExtKeyUsage, want.ExtKeyUsage) &&
		containsAll(cert.DNSNames, want.DNSNames) &&
		containsAll(ipStrings(cert.IPAddresses), ipStrings(want.IPAddresses))
}

// renewal is when a certificate is due.
func (a *Authority) renewal(cert *x509.Certificate) time.Time {
	return cert.NotAfter.Add(-a.cfg.Life / 3)
}

// A Certificate is what people are told of one.
type Certificate struct {
	Name    string    // "ca", or the request's File
	File    string    // where it is
	Expires time.Time // zero: never
	Names   []string  // host names and addresses of a server's
}

// Certificates returns the authority and every certificate issued, by name.
func (a *Authority) Certificates() []Certificate {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := []Certificate{describe("ca", a.CertFile(), a.cert)}
	for _, leaf := range a.leaves {
		now := leaf.current.Load()
		list = append(list, describe(leaf.request.File, now.pair.CertFile, now.cert))
	}
	slices.SortFunc(list[1:], func(x, y Certificate) int { return cmp.Compare(x.Name, y.Name) })
	return list
}

func describe(name, file string, cert *x509.Certificate) Certificate {
	c := Certificate{Name: name, File: file, Names: append(slices.Clone(cert.DNSNames), ipStrings(cert.IPAddresses)...)}
	if cert.NotAfter.Before(never) {
		c.Expires = cert.NotAfter
	}
	return c
}

// warnBefore is when a person is told that an authority of theirs ends.
const warnBefore = 365 * 24 * time.Hour

// Faults returns what a person must mend: certificates that are overdue because
// they cannot be issued, and an authority of the user's own that ends.
func (a *Authority) Faults() []error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	now := a.cfg.Now()
	if end := a.cert.NotAfter; end.Before(never) && now.Add(warnBefore).After(end) {
		errs = append(errs, fmt.Errorf("the authority %s ends on %s: replace it and its key before, or move %s away for a new one, and fetch every kubeconfig again",
			a.CertFile(), end.Format(time.DateOnly), a.cfg.Dir))
	}
	if now.Before(a.cert.NotBefore) {
		errs = append(errs, fmt.Errorf("the clock says %s and the authority %s begins on %s: set the clock",
			now.UTC().Format(time.DateTime+" UTC"), a.CertFile(), a.cert.NotBefore.Format(time.DateOnly)))
	}
	for _, leaf := range a.leaves {
		current := leaf.current.Load()
		// Half of what was left when it was due is gone.
		if end := current.cert.NotAfter; end.Before(a.cert.NotAfter) && a.now().After(end.Add(-a.cfg.Life/6)) {
			errs = append(errs, fmt.Errorf("certificate %s ends on %s and was not renewed: see the log", current.pair.CertFile, end.Format(time.DateTime+" UTC")))
		}
	}
	return errs
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

func containsAll(have, want []string) bool {
	return !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(have, w) })
}

func ipStrings(ips []net.IP) []string {
	out := make([]string, 0, len(ips))
	for _, ip := range ips {
		out = append(out, ip.String())
	}
	return out
}
