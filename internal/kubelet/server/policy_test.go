package server

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

func TestPolicy(t *testing.T) {
	tests := []struct {
		name   string
		policy Policy
		cert   string // of whom
		token  string
		path   string
		want   string
	}{
		{"anonymous may nothing by itself", Policy{Anonymous: true}, "", "", "/pods", "403"},
		{"anonymous with rights", Policy{Anonymous: true}, "", "", "/healthz", "200"},
		{"anonymous with a bad token", Policy{Anonymous: true}, "", "forged", "/healthz", "401"},
		{"all may all", Policy{AlwaysAllow: true}, "", "nobody-token", "/pods", "200"},
		{"all may all, but strangers", Policy{AlwaysAllow: true}, "", "", "/pods", "401"},
		{"everybody at all", Policy{AlwaysAllow: true, Anonymous: true}, "", "", "/pods", "200"},
		{"no tokens", Policy{NoTokens: true}, "", "admin-token", "/pods", "401"},
		{"no tokens, but a certificate", Policy{NoTokens: true}, "admin", "", "/pods", "200"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) { cfg.Policy = tt.policy })
			r.api.allowed["system:anonymous"] = []string{"get healthz"}
			var certs []tls.Certificate
			if tt.cert != "" {
				certs = append(certs, r.ca.issue(tt.cert, x509.ExtKeyUsageClientAuth))
			}
			code, _, body := r.do(r.client(certs...), http.MethodGet, r.url+tt.path, tt.token)
			if got := gotten(code, ""); got != tt.want {
				t.Errorf("GET %s = %d %q, want %s", tt.path, code, body, tt.want)
			}
		})
	}
}

func TestPolicyOf(t *testing.T) {
	yes, no := true, false
	everything := kubeletconfig.KubeletConfiguration{
		EnableDebuggingHandlers: &no, EnableSystemLogHandler: &no, EnableProfilingHandler: &no, EnableDebugFlagsHandler: &no,
		EnableContentionProfiling: true, StreamingConnectionIdleTimeout: metav1.Duration{Duration: time.Minute},
	}
	everything.Authentication.Anonymous.Enabled = &yes
	everything.Authentication.Webhook = kubeletconfig.KubeletWebhookAuthentication{Enabled: &no, CacheTTL: metav1.Duration{Duration: time.Second}}
	everything.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeAlwaysAllow
	everything.Authorization.Webhook.CacheAuthorizedTTL.Duration = 2 * time.Second
	everything.Authorization.Webhook.CacheUnauthorizedTTL.Duration = 3 * time.Second
	tests := []struct {
		name string
		give kubeletconfig.KubeletConfiguration
		want Policy
	}{
		{"nothing set: upstream's defaults", kubeletconfig.KubeletConfiguration{}, Policy{
			TokenTTL: 2 * time.Minute, AllowTTL: 5 * time.Minute, RefuseTTL: 30 * time.Second, StreamIdle: 4 * time.Hour,
		}},
		{"everything set", everything, Policy{
			Anonymous: true, NoTokens: true, AlwaysAllow: true, TokenTTL: time.Second, AllowTTL: 2 * time.Second, RefuseTTL: 3 * time.Second,
			NoDebugging: true, NoSystemLogs: true, NoProfiling: true, NoDebugFlags: true, ContentionProfiling: true, StreamIdle: time.Minute,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, PolicyOf(&tt.give).withDefaults()); diff != "" {
				t.Errorf("policy (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTokenOf(t *testing.T) {
	encoded := bearerProtocol + base64.RawURLEncoding.EncodeToString([]byte("secret"))
	tests := []struct {
		name                     string
		authorization, protocols string
		token, handedOn          string
	}{
		{"none", "", "v5.channel.k8s.io", "", "v5.channel.k8s.io"},
		{"of the header", "Bearer secret", "v5.channel.k8s.io", "secret", "v5.channel.k8s.io"},
		{"another scheme", "Basic secret", "v5.channel.k8s.io", "", "v5.channel.k8s.io"},
		{"of the protocols", "", encoded + ", v5.channel.k8s.io", "secret", "v5.channel.k8s.io"},
		{"of the protocols alone", "", encoded, "", ""},
		{"twice", "", encoded + "," + encoded + ",v5.channel.k8s.io", "", "v5.channel.k8s.io"},
		{"no base64", "", bearerProtocol + "!,v5.channel.k8s.io", "", "v5.channel.k8s.io"},
		{"empty", "", bearerProtocol + ",v5.channel.k8s.io", "", "v5.channel.k8s.io"},
		{"no text", "", bearerProtocol + base64.RawURLEncoding.EncodeToString([]byte("a\nb")) + ",v5.channel.k8s.io", "", "v5.channel.k8s.io"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			for name, value := range map[string]string{
				"Connection": "Upgrade", "Upgrade": "websocket", "Authorization": tt.authorization, protocolHeader: tt.protocols,
			} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			if got := tokenOf(r); got != tt.token {
				t.Errorf("token = %q, want %q", got, tt.token)
			}
			clean := withoutCredentials(r)
			if got := clean.Header.Get(protocolHeader); got != tt.handedOn || clean.Header.Get("Authorization") != "" {
				t.Errorf("the runtime sees %q, want %q and no header Authorization", clean.Header, tt.handedOn)
			}
		})
	}
}

// FuzzProtocols checks that a token in a list of protocols never goes on to the
// runtime.
func FuzzProtocols(f *testing.F) {
	f.Add("v5.channel.k8s.io", bearerProtocol+"c2VjcmV0")
	f.Add(bearerProtocol+"c2VjcmV0, x", "")
	f.Add(" ,, "+bearerProtocol, bearerProtocol+"=")
	f.Fuzz(func(t *testing.T, first, second string) {
		token, others := splitProtocols([]string{first, second})
		if token != "" && len(others) == 0 {
			t.Errorf("a token of %q, %q without another protocol", first, second)
		}
		for _, other := range others {
			if again, _ := splitProtocols([]string{other, "x"}); again != "" {
				t.Errorf("%q, %q: %q goes on", first, second, other)
			}
		}
	})
}
