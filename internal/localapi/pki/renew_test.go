package pki

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Whatever the clock showed when certificates were made and whatever it shows
// now: after a start they are valid, and kubeconfigs that have the authority go on.
func TestAnyClock(t *testing.T) {
	var (
		noClock = time.Unix(3, 0)
		today   = Epoch.AddDate(0, 6, 0)
		later   = Epoch.AddDate(3, 0, 0)
		far     = Epoch.AddDate(120, 0, 0)
	)
	for _, tc := range []struct {
		name string
		at   []time.Time // of each start
	}{
		{"right", []time.Time{today, today}},
		{"no clock at first", []time.Time{noClock, today}},
		{"no clock at the first two starts", []time.Time{noClock, noClock, later}},
		{"no clock after years", []time.Time{today, later, noClock, later}},
		{"far ahead", []time.Time{today, far}},
		{"ahead at first", []time.Time{far, today}},
		{"ahead for a while", []time.Time{today, far, today}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(openAt(t, dir, tc.at[0]).CertPEM())
			for _, now := range tc.at {
				a := openAt(t, dir, now)
				for usage, r := range map[x509.ExtKeyUsage]Request{
					x509.ExtKeyUsageServerAuth: {File: "s", User: "s", Names: []string{"one"}},
					x509.ExtKeyUsageClientAuth: {File: "c", User: "c"},
				} {
					cert := parse(t, issue(t, a, r).Cert)
					if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
						t.Errorf("at %v: %v", now, err)
					}
				}
				if errs := a.Faults(); len(errs) > 0 {
					t.Error(errs)
				}
				if got, want := a.ClockErr() != nil, now.Equal(noClock); got != want {
					t.Errorf("at %v: clock %v", now, a.ClockErr())
				}
			}
		})
	}
}

// A machine that keeps no time starts in 1970 each time. Its certificates
// must not end earlier for that: they would have ended when the time comes.
func TestKeptWhenClockGoesBack(t *testing.T) {
	dir, r := t.TempDir(), Request{File: "x", User: "u"}
	before := issue(t, openAt(t, dir, Epoch.AddDate(5, 0, 0)), r)
	if after := issue(t, openAt(t, dir, time.Unix(3, 0)), r); string(after.Cert) != string(before.Cert) {
		t.Errorf("issued again, until %v", parse(t, after.Cert).NotAfter)
	}
}

// A running program renews what is due and only that; what it handed out is
// current at once.
func TestRenew(t *testing.T) {
	now := Epoch.AddDate(1, 0, 0)
	names := []string{"10.0.0.1"}
	a, err := Open(Config{Dir: t.TempDir(), Life: 3 * time.Minute, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	server, err := a.Issue(Request{File: "server", User: "s", Names: []string{"one"}, MoreNames: func() []string { return names }})
	if err != nil {
		t.Fatal(err)
	}
	client, err := a.Issue(Request{File: "client", User: "c"})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"nothing is due", func() {}, nil},
		{"an address more", func() { names = []string{"10.0.0.1", "10.0.0.2"} }, []string{"server"}},
		{"an address less", func() { names = names[:1] }, nil},
		{"a third is left", func() { now = now.Add(2*time.Minute + time.Second) }, []string{"server", "client"}},
		{"again nothing", func() {}, nil},
		{"the clock jumps", func() { now = now.AddDate(90, 0, 0) }, []string{"server", "client"}},
		{"and back", func() { now = now.AddDate(-90, 0, 0) }, nil},
	} {
		step.do()
		got, err := a.Renew()
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff(got, step.want); diff != "" {
			t.Errorf("%s: renewed: %s", step.name, diff)
		}
		for _, name := range names {
			if err := server.TLS().Leaf.VerifyHostname(name); err != nil {
				t.Errorf("%s: %v", step.name, err)
			}
		}
		for _, leaf := range []*Leaf{server, client} {
			cert := leaf.TLS().Leaf
			if !now.Before(cert.NotAfter) {
				t.Errorf("%s: %s ended at %v", step.name, cert.Subject, cert.NotAfter)
			}
			onDisk, err := tls.LoadX509KeyPair(leaf.Pair().CertFile, leaf.Pair().KeyFile)
			if err != nil || !onDisk.Leaf.Equal(cert) {
				t.Errorf("%s: on disk is another: %v", step.name, err)
			}
		}
	}
}

// What cannot be written stays in use and is shown before it ends.
func TestRenewFails(t *testing.T) {
	now := Epoch.AddDate(1, 0, 0)
	dir := t.TempDir()
	a, err := Open(Config{Dir: dir, Life: 6 * time.Hour, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := a.Issue(Request{File: "x", User: "u"})
	if err != nil {
		t.Fatal(err)
	}
	before := leaf.TLS()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	now = now.Add(4*time.Hour + time.Minute)
	if renewed, err := a.Renew(); err == nil || len(renewed) > 0 {
		t.Errorf("renewed %v, %v", renewed, err)
	}
	if leaf.TLS() != before {
		t.Error("the certificate changed")
	}
	if errs := a.Faults(); len(errs) > 0 {
		t.Errorf("shown too early: %v", errs)
	}
	now = now.Add(time.Hour)
	if errs := a.Faults(); len(errs) != 1 || !strings.Contains(errs[0].Error(), leaf.Pair().CertFile) {
		t.Errorf("got %v, want the certificate's file", errs)
	}
}

// writeAuthority puts an authority into dir that Open did not make.
func writeAuthority(t *testing.T, dir, name string, from, to time.Time) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), NotBefore: from, NotAfter: to, Subject: pkix.Name{CommonName: name},
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := (&Authority{cfg: Config{Dir: dir}}).save("ca", encode("CERTIFICATE", der), key); err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// An authority of the first version had an end. Its key gets a certificate
// without: clients with the old one trust what is signed now, and the other
// way round.
func TestAuthorityWithoutEnd(t *testing.T) {
	dir := t.TempDir()
	old, _ := writeAuthority(t, dir, authorityName, Epoch, Epoch.AddDate(30, 0, 0))
	a := openAt(t, dir, Epoch.AddDate(1, 0, 0))
	if got := a.Certificates()[0].Expires; !got.IsZero() {
		t.Errorf("ends %v", got)
	}
	oldRoots := x509.NewCertPool()
	oldRoots.AddCert(old)
	cert := parse(t, issue(t, a, Request{File: "x", User: "u", Names: []string{"one"}}).Cert)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: oldRoots, CurrentTime: Epoch.AddDate(1, 0, 0)}); err != nil {
		t.Error(err)
	}
	if again := openAt(t, dir, Epoch.AddDate(1, 0, 0)); string(again.CertPEM()) != string(a.CertPEM()) {
		t.Error("made anew at the second start")
	}
}

// An authority that the user put there is not touched, and its end is told.
func TestUsersAuthority(t *testing.T) {
	from, to := Epoch.AddDate(1, 0, 0), Epoch.AddDate(11, 0, 0)
	for _, tc := range []struct {
		name string
		now  time.Time
		want string
	}{
		{"in the middle", from.AddDate(3, 0, 0), ""},
		{"near its end", to.AddDate(0, -11, 0), "ca.crt ends on 2037-10-01"},
		{"before its begin", from.AddDate(0, -1, 0), "the clock says 2027-09-01 00:00:00 UTC and the authority"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			theirs, _ := writeAuthority(t, dir, "Example Corp", from, to)
			a := openAt(t, dir, tc.now)
			if !parse(t, a.CertPEM()).Equal(theirs) {
				t.Error("it was replaced")
			}
			cert := parse(t, issue(t, a, Request{File: "x", User: "u"}).Cert)
			if cert.NotBefore.Before(from) || cert.NotAfter.After(to) {
				t.Errorf("a certificate from %v to %v", cert.NotBefore, cert.NotAfter)
			}
			var got string
			for _, err := range a.Faults() {
				got += err.Error()
			}
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestCertificates(t *testing.T) {
	dir, now := t.TempDir(), Epoch.AddDate(1, 0, 0)
	a := openAt(t, dir, now)
	issue(t, a, Request{File: "x", User: "u"})
	issue(t, a, Request{File: "b", User: "u", Names: []string{"one", "10.0.0.1"}})
	want := []Certificate{
		{Name: "ca", File: filepath.Join(dir, "ca.crt")},
		{Name: "b", File: filepath.Join(dir, "b.crt"), Expires: now.Add(DefaultLife), Names: []string{"one", "10.0.0.1"}},
		{Name: "x", File: filepath.Join(dir, "x.crt"), Expires: now.Add(DefaultLife)},
	}
	got := a.Certificates()
	for i := range got {
		if len(got[i].Names) == 0 {
			got[i].Names = nil
		}
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Error(diff)
	}
}
