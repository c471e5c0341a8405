package tlsoptions

import (
	"crypto/tls"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		settings Settings
		version  uint16
		suites   []uint16
		curves   []tls.CurveID
		notes    int
	}{
		"nothing": {version: tls.VersionTLS12},
		"everything": {
			settings: Settings{"VersionTLS12", []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"}, []int32{29, 4588}},
			version:  tls.VersionTLS12,
			suites:   []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256},
			curves:   []tls.CurveID{tls.X25519, tls.X25519MLKEM768},
		},
		"not secure": {
			settings: Settings{"VersionTLS10", []string{"TLS_RSA_WITH_RC4_128_SHA"}, nil},
			version:  tls.VersionTLS10, suites: []uint16{tls.TLS_RSA_WITH_RC4_128_SHA}, notes: 2,
		},
		"suites without effect": {
			settings: Settings{"VersionTLS13", []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}, nil},
			version:  tls.VersionTLS13, suites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}, notes: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, notes, err := Parse(test.settings)
			if err != nil {
				t.Fatal(err)
			}
			if c.MinVersion != test.version || !slices.Equal(c.CipherSuites, test.suites) || !slices.Equal(c.CurvePreferences, test.curves) || len(notes) != test.notes {
				t.Errorf("got %x, %x, %v, %q", c.MinVersion, c.CipherSuites, c.CurvePreferences, notes)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		settings Settings
		want     []string
	}{
		"all at once": {
			Settings{"TLS1.2", []string{"AES"}, []int32{1, 0, 29, 29}},
			[]string{`tlsMinVersion "TLS1.2" is not known: write one of VersionTLS10,`, `tlsCipherSuites: "AES" is not known: known are TLS_`, "tlsCurvePreferences: 1 ", "tlsCurvePreferences: 0 ", "29 is there twice"},
		},
		"a suite of TLS 1.3": {Settings{CipherSuites: []string{"TLS_AES_128_GCM_SHA256"}}, []string{"is of TLS 1.3"}},
		"too large":          {Settings{CurvePreferences: []int32{65536 + 29}}, []string{"65565 is not known"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Parse(test.settings)
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}
		})
	}
}
