package pki

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"slices"
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
}

// A Pair is a certificate and its key, in memory and on disk.
type Pair struct {
	Cert, Key         []byte // PEM
	CertFile, KeyFile string
}

// Issue returns the certificate that r asks for: the one in the folder if it
// is still good, or a new one. A damaged one is replaced without a word, as
// replacing it costs nobody anything.
func (a *Authority) Issue(r Request) (Pair, error) {
	pair := Pair{CertFile: a.path(r.File + ".crt"), KeyFile: a.path(r.File + ".key")}
	cert, key, err := a.load(r.File)
	if err == nil && a.good(cert, r) {
		pair.Cert = encode("CERTIFICATE", cert.Raw)
		pair.Key, err = encodeKey(key)
		return pair, err
	}
	if key, err = newKey(); err != nil {
		return Pair{}, err
	}
	template := r.template()
	if err := a.stamp(template, leafLife); err != nil {
		return Pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign certificate %q: %w", r.File, err)
	}
	pair.Cert = encode("CERTIFICATE", der)
	if pair.Key, err = encodeKey(key); err != nil {
		return Pair{}, err
	}
	return pair, a.save(r.File, pair.Cert, key)
}

// template is the certificate that r asks for, without dates.
func (r Request) template() *x509.Certificate {
	usage := x509.ExtKeyUsageClientAuth
	if len(r.Names) > 0 {
		usage = x509.ExtKeyUsageServerAuth
	}
	t := &x509.Certificate{
		Subject:     pkix.Name{CommonName: r.User, Organization: r.Groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	for _, name := range r.Names {
		if ip := net.ParseIP(name); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, name)
		}
	}
	return t
}

// good reports whether cert still answers r: signed by us, young, the same
// bearer, and every name in it.
func (a *Authority) good(cert *x509.Certificate, r Request) bool {
	now := a.now()
	if now.Before(cert.NotBefore) || now.Add(renewBefore).After(cert.NotAfter) && cert.NotAfter.Before(a.cert.NotAfter) {
		return false
	}
	want := r.template()
	return bytes.Equal(cert.RawIssuer, a.cert.RawSubject) &&
		cert.CheckSignatureFrom(a.cert) == nil &&
		cert.Subject.CommonName == r.User &&
		slices.Equal(sorted(cert.Subject.Organization), sorted(r.Groups)) &&
		slices.Equal(cert.ExtKeyUsage, want.ExtKeyUsage) &&
		containsAll(cert.DNSNames, want.DNSNames) &&
		containsAll(ipStrings(cert.IPAddresses), ipStrings(want.IPAddresses))
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
