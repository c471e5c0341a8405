package imagerights

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

func TestVerify(t *testing.T) {
	allow := []string{"reg.example/a", "reg.example/team/*"}
	for _, test := range []struct {
		policy Policy
		name   string
		pulled bool
		want   bool
	}{
		{Policy{}, "reg.example/a", false, false},
		{Policy{}, "reg.example/a", true, true},
		{Policy{Kind: kubeletconfig.NeverVerifyPreloadedImages}, "reg.example/a", true, true},
		{Policy{Kind: kubeletconfig.NeverVerify}, "reg.example/a", true, false},
		{Policy{Kind: kubeletconfig.AlwaysVerify}, "reg.example/a", false, true},
		{Policy{Kind: kubeletconfig.NeverVerifyAllowlistedImages, Allowlist: allow}, "reg.example/a", true, false},
		{Policy{Kind: kubeletconfig.NeverVerifyAllowlistedImages, Allowlist: allow}, "reg.example/ab", false, true},
		{Policy{Kind: kubeletconfig.NeverVerifyAllowlistedImages, Allowlist: allow}, "reg.example/team/x/y", true, false},
		{Policy{Kind: kubeletconfig.NeverVerifyAllowlistedImages, Allowlist: allow}, "reg.example/teams", true, true},
	} {
		t.Run(fmt.Sprintf("%s %s %v", test.policy.Kind, test.name, test.pulled), func(t *testing.T) {
			if got := test.policy.Verify(test.name, test.pulled); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	list := func(patterns ...string) Policy {
		return Policy{Kind: kubeletconfig.NeverVerifyAllowlistedImages, Allowlist: patterns}
	}
	for _, test := range []struct {
		policy Policy
		want   string
	}{
		{Policy{}, ""},
		{Policy{Kind: kubeletconfig.AlwaysVerify}, ""},
		{list("reg.example/a", "reg.example/*", "busybox"), ""},
		{Policy{Kind: "Sometimes"}, `imagePullCredentialsVerificationPolicy "Sometimes" is not known: NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages or AlwaysVerify`},
		{Policy{Allowlist: []string{"a"}}, "preloadedImagesVerificationAllowlist is only for imagePullCredentialsVerificationPolicy NeverVerifyAllowlistedImages"},
		{list("a", " b"), `preloadedImagesVerificationAllowlist[1] " b" has spaces around it`},
		{list("/*"), `preloadedImagesVerificationAllowlist[0] "/*" names no registry`},
		{list("reg.*/a"), `preloadedImagesVerificationAllowlist[0] "reg.*/a" has a * that is not a whole last part: only /* at the end is one`},
		{list("reg.example/a:1"), `preloadedImagesVerificationAllowlist[0] "reg.example/a:1" has a tag or a digest: write reg.example/a`},
	} {
		t.Run(test.want, func(t *testing.T) {
			got := ""
			if err := test.policy.Check(); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestName(t *testing.T) {
	const digest = "@sha256:0000000000000000000000000000000000000000000000000000000000000000"
	for image, want := range map[string]string{
		"busybox":                     "busybox",
		"busybox:1":                   "busybox",
		"localhost:5000/a":            "localhost:5000/a",
		"localhost:5000/a:1" + digest: "localhost:5000/a",
		"docker.io/library/busybox:1": "docker.io/library/busybox",
		"reg.example/team/app:v1.0.0-rc_1" + digest: "reg.example/team/app",
	} {
		if got, err := Name(image); got != want || err != nil {
			t.Errorf("%s: got %q (%v), want %q", image, got, err, want)
		}
	}
	if got, err := Name("A B"); err == nil {
		t.Errorf("got %q of what is no name", got)
	}
	for image, want := range map[string]string{
		"busybox": "docker.io/library/busybox:latest", "a.b/c:1": "a.b/c:1", "a.b/c" + digest: "a.b/c" + digest, "A B": "A B",
	} {
		if got := Normal(image); got != want {
			t.Errorf("%s: got %q, want %q", image, got, want)
		}
	}
}

func secret(name, hash string) kubeletconfig.ImagePullSecret {
	return kubeletconfig.ImagePullSecret{UID: "uid " + name, Namespace: "ns", Name: name, CredentialHash: hash}
}

func TestJudge(t *testing.T) {
	account := kubeletconfig.ImagePullServiceAccount{UID: "u", Namespace: "ns", Name: "s"}
	record := func(by kubeletconfig.ImagePullCredentials) *kubeletconfig.ImagePulledRecord {
		return &kubeletconfig.ImagePulledRecord{CredentialMapping: map[string]kubeletconfig.ImagePullCredentials{"reg.example/a": by}}
	}
	secrets := func(all ...kubeletconfig.ImagePullSecret) *kubeletconfig.ImagePulledRecord {
		return record(kubeletconfig.ImagePullCredentials{KubernetesSecrets: all})
	}
	many := make([]kubeletconfig.ImagePullSecret, maxLearned)
	for i := range many {
		many[i] = secret(fmt.Sprint("many", i), "h")
	}
	with := func(s kubeletconfig.ImagePullSecret) podfiles.Credential { return podfiles.Credential{Secret: &s} }
	b := secret("b", "h")
	changed := secret("a", "other")
	for _, test := range []struct {
		name    string
		record  *kubeletconfig.ImagePulledRecord
		have    []podfiles.Credential
		may     bool
		learned *kubeletconfig.ImagePullSecret
	}{
		{"no record", nil, []podfiles.Credential{with(secret("a", "h"))}, false, nil},
		{"everybody", record(kubeletconfig.ImagePullCredentials{NodePodsAccessible: true}), nil, true, nil},
		{"nobody", record(kubeletconfig.ImagePullCredentials{}), []podfiles.Credential{with(secret("a", "h"))}, false, nil},
		{"the same secret", secrets(secret("a", "h")), []podfiles.Credential{{}, with(secret("a", "h"))}, true, nil},
		{"a secret of the same credentials", secrets(secret("a", "h")), []podfiles.Credential{with(b)}, true, &b},
		{"the secret with other credentials", secrets(secret("a", "h")), []podfiles.Credential{with(changed)}, true, &changed},
		{"no more are learned", secrets(many...), []podfiles.Credential{with(b)}, true, nil},
		{"another secret", secrets(secret("a", "h")), []podfiles.Credential{with(secret("b", "i"))}, false, nil},
		{"hashes that are missing", secrets(secret("a", "")), []podfiles.Credential{with(secret("b", ""))}, false, nil},
		{"no credentials", secrets(secret("a", "h")), []podfiles.Credential{{}}, false, nil},
		{"the account", record(kubeletconfig.ImagePullCredentials{KubernetesServiceAccounts: []kubeletconfig.ImagePullServiceAccount{account}}), []podfiles.Credential{{Account: &account}}, true, nil},
		{"another account", record(kubeletconfig.ImagePullCredentials{KubernetesServiceAccounts: []kubeletconfig.ImagePullServiceAccount{account}}), []podfiles.Credential{{Account: &kubeletconfig.ImagePullServiceAccount{UID: "v", Namespace: "ns", Name: "s"}}}, false, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			may, learned := Judge(test.record, "reg.example/a", func() []podfiles.Credential { return test.have })
			if may != test.may {
				t.Errorf("got %v, want %v", may, test.may)
			}
			if diff := cmp.Diff(learned, test.learned); diff != "" {
				t.Errorf("learned: got -, want +:\n%s", diff)
			}
		})
	}
	may, _ := Judge(secrets(secret("a", "h")), "reg.example/b", func() []podfiles.Credential { return []podfiles.Credential{with(secret("a", "h"))} })
	if may {
		t.Error("a pod may use an image by another name, whose registry may know nothing of its secret")
	}
}

// TestAddBounds: a record does not grow with each namespace that comes and goes.
func TestAddBounds(t *testing.T) {
	var all kubeletconfig.ImagePullCredentials
	for i := range maxKnown + 2 {
		var changed bool
		one := secret("s", "h")
		one.UID = strconv.Itoa(i)
		account := kubeletconfig.ImagePullServiceAccount{UID: one.UID}
		all, changed = Add(all, kubeletconfig.ImagePullCredentials{
			KubernetesSecrets: []kubeletconfig.ImagePullSecret{one}, KubernetesServiceAccounts: []kubeletconfig.ImagePullServiceAccount{account},
		})
		if !changed {
			t.Fatalf("the one of number %d is not kept", i)
		}
	}
	if s, a := all.KubernetesSecrets, all.KubernetesServiceAccounts; len(s) != maxKnown || len(a) != maxKnown || s[0].UID != "2" || a[0].UID != "2" {
		t.Errorf("%d secrets from %s on and %d accounts from %s on, want %d from 2 on", len(s), s[0].UID, len(a), a[0].UID, maxKnown)
	}
}

func TestNormal(t *testing.T) {
	const digest = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for image, want := range map[string]string{
		"a": "docker.io/library/a:latest", "a:1": "docker.io/library/a:1", "r.example/a" + digest: "r.example/a" + digest,
		"r.example/a:1" + digest: "r.example/a" + digest, "A": "A",
	} {
		if got := Normal(image); got != want {
			t.Errorf("%s: got %s, want %s", image, got, want)
		}
	}
}

func TestAdd(t *testing.T) {
	type creds = kubeletconfig.ImagePullCredentials
	account := kubeletconfig.ImagePullServiceAccount{UID: "u", Namespace: "ns", Name: "s"}
	everybody := creds{NodePodsAccessible: true}
	a := secret("a", "h")
	for _, test := range []struct {
		name              string
		known, more, want creds
		changed           bool
	}{
		{"first", creds{}, creds{KubernetesSecrets: []kubeletconfig.ImagePullSecret{a}}, creds{KubernetesSecrets: []kubeletconfig.ImagePullSecret{a}}, true},
		{"again", creds{KubernetesSecrets: []kubeletconfig.ImagePullSecret{a}}, creds{KubernetesSecrets: []kubeletconfig.ImagePullSecret{a}}, creds{KubernetesSecrets: []kubeletconfig.ImagePullSecret{a}}, false},
		{"other content", creds{KubernetesSecrets: []kubeletconfig.ImagePullSecret{a}}, creds{KubernetesSecrets: []kubeletconfig.ImagePullSecret{secret("a", "i")}}, creds{KubernetesSecrets: []kubeletconfig.ImagePullSecret{secret("a", "i")}}, true},
		{"an account too", creds{KubernetesSecrets: []kubeletconfig.ImagePullSecret{a}}, By(&podfiles.Credential{Account: &account}), creds{KubernetesSecrets: []kubeletconfig.ImagePullSecret{a}, KubernetesServiceAccounts: []kubeletconfig.ImagePullServiceAccount{account}}, true},
		{"everybody now", creds{KubernetesSecrets: []kubeletconfig.ImagePullSecret{a}}, By(nil), everybody, true},
		{"everybody stays", everybody, By(&podfiles.Credential{Secret: &a}), everybody, false},
		{"nothing", creds{}, creds{}, creds{}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, changed := Add(test.known, test.more)
			if diff := cmp.Diff(got, test.want); diff != "" || changed != test.changed {
				t.Errorf("changed %v, want %v; got -, want +:\n%s", changed, test.changed, diff)
			}
		})
	}
}
