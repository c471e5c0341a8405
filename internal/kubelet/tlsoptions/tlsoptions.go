// Package tlsoptions reads the fields of a KubeletConfiguration that say what the
// kubelet's API agrees to with its clients: versions, cipher suites and key
// exchanges of TLS.
//
// Everything here is a pure function.
package tlsoptions

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Settings are the fields, as upstream has them.
type Settings struct {
	MinVersion       string   // tlsMinVersion: VersionTLS12 and so on; empty: that
	CipherSuites     []string // tlsCipherSuites: of TLS 1.2 and before, by Go's names; none: Go's choice
	CurvePreferences []int32  // tlsCurvePreferences: by number; none: Go's choice
}

// Of returns the settings of a configuration.
func Of(k *kubeletconfig.KubeletConfiguration) Settings {
	return Settings{MinVersion: k.TLSMinVersion, CipherSuites: k.TLSCipherSuites, CurvePreferences: k.TLSCurvePreferences}
}

var versions = map[string]uint16{
	"VersionTLS10": tls.VersionTLS10,
	"VersionTLS11": tls.VersionTLS11,
	"VersionTLS12": tls.VersionTLS12,
	"VersionTLS13": tls.VersionTLS13,
}

// Parse returns a configuration that holds what the settings say and nothing else,
// or all that is wrong with them; each message begins with the field. notes are
// what is allowed, and should not be done.
func Parse(s Settings) (c *tls.Config, notes []string, err error) {
	c = &tls.Config{MinVersion: tls.VersionTLS12}
	var errs []error
	if s.MinVersion != "" {
		version, known := versions[s.MinVersion]
		if !known {
			errs = append(errs, fmt.Errorf("tlsMinVersion %q is not known: write one of %s", s.MinVersion, strings.Join(slices.Sorted(maps.Keys(versions)), ", ")))
		}
		c.MinVersion = version
		if known && version < tls.VersionTLS12 {
			notes = append(notes, "tlsMinVersion "+s.MinVersion+" allows a version that is not secure: VersionTLS12 is what every client can do")
		}
	}
	suites, insecure := cipherSuites()
	for _, name := range s.CipherSuites {
		id, known := suites[name]
		switch {
		case !known && isTLS13(name):
			errs = append(errs, fmt.Errorf("tlsCipherSuites: %s is of TLS 1.3, whose suites cannot be chosen: leave it out", name))
		case !known:
			errs = append(errs, fmt.Errorf("tlsCipherSuites: %q is not known: known are %s", name, strings.Join(slices.Sorted(maps.Keys(suites)), ", ")))
		default:
			c.CipherSuites = append(c.CipherSuites, id)
		}
		if insecure[name] {
			notes = append(notes, "tlsCipherSuites: "+name+" is not secure")
		}
	}
	if c.MinVersion == tls.VersionTLS13 && len(s.CipherSuites) > 0 {
		notes = append(notes, "tlsCipherSuites has no effect with tlsMinVersion VersionTLS13: the suites of TLS 1.3 cannot be chosen")
	}
	curves, err := curves(s.CurvePreferences)
	c.CurvePreferences = curves
	if errs = append(errs, err); errors.Join(errs...) != nil {
		return nil, nil, errors.Join(errs...)
	}
	return c, notes, nil
}

// cipherSuites returns those that can be chosen, by name, and which of them are
// not secure.
func cipherSuites() (ids map[string]uint16, insecure map[string]bool) {
	ids = map[string]uint16{
		// Go's names of before, which upstream takes.
		"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305":   tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	}
	insecure = map[string]bool{}
	for _, s := range tls.CipherSuites() {
		if !isTLS13(s.Name) {
			ids[s.Name] = s.ID
		}
	}
	for _, s := range tls.InsecureCipherSuites() {
		ids[s.Name], insecure[s.Name] = s.ID, true
	}
	return ids, insecure
}

func isTLS13(name string) bool {
	return slices.ContainsFunc(tls.CipherSuites(), func(s *tls.CipherSuite) bool {
		return s.Name == name && slices.Equal(s.SupportedVersions, []uint16{tls.VersionTLS13})
	})
}

func curves(numbers []int32) (ids []tls.CurveID, err error) {
	var errs []error
	for i, n := range numbers {
		known := n > 0 && n <= math.MaxUint16 && !strings.HasPrefix(tls.CurveID(n).String(), "CurveID(")
		switch {
		case !known:
			errs = append(errs, fmt.Errorf("tlsCurvePreferences: %d is not known: write numbers of Go's crypto/tls, such as 29 (X25519), 23 (P-256) or 4588 (X25519MLKEM768)", n))
		case slices.Contains(numbers[:i], n):
			errs = append(errs, fmt.Errorf("tlsCurvePreferences: %d is there twice: leave one out", n))
		default:
			ids = append(ids, tls.CurveID(n))
		}
	}
	return ids, errors.Join(errs...)
}
