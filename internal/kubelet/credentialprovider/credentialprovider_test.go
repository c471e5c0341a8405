package credentialprovider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1"
	credentialproviderapi "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/credentialconfig"
)

const version = "credentialprovider.kubelet.k8s.io/v1"

// plugin notes what it was asked in the file LOG, and answers with ANSWER unless
// its name says otherwise.
const plugin = `#!/bin/sh
{ cat; echo " $*"; } >>"$LOG"
case ${0##*/} in
fails) echo "no such role: s3cret" >&2; exit 3 ;;
hangs) sleep 1000 & wait ;;
talks) exec cat /dev/zero ;;
leaves) sleep 1000 & ;;
esac
printf %s "$ANSWER"
`

// world is some plugins and what they were asked.
type world struct {
	*Plugins
	t   *testing.T
	log string
	pod *v1.Pod

	mu       sync.Mutex // guards the fields below
	account  *v1.ServiceAccount
	requests []authenticationv1.TokenRequest
}

func (w *world) GetServiceAccount(context.Context, string, string) (*v1.ServiceAccount, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.account == nil {
		return nil, errors.New("not found")
	}
	return w.account, nil
}

func (w *world) Token(_ context.Context, _, _ string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = append(w.requests, *request)
	return &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "token-of-" + request.Spec.BoundObjectRef.Name}}, nil
}

// provider returns one for every image of a host under example, or at 127.0.0.1.
func named(name, answer string) kubeletconfig.CredentialProvider {
	return kubeletconfig.CredentialProvider{
		Name: name, APIVersion: version, MatchImages: []string{"*.example"}, DefaultCacheDuration: &metav1.Duration{},
		Env: []kubeletconfig.ExecEnvVar{{Name: "ANSWER", Value: answer}},
	}
}

func answer(kind, rest string) string {
	return `{"apiVersion":"` + version + `","kind":"CredentialProviderResponse","cacheKeyType":"` + kind + `"` + rest + `}`
}

func auth(entries string) string { return `,"auth":{` + entries + `}` }

func login(pattern, user string) string {
	return `"` + pattern + `":{"username":"` + user + `","password":"p"}`
}

func newWorld(t *testing.T, providers ...kubeletconfig.CredentialProvider) *world {
	t.Helper()
	bin := t.TempDir()
	w := &world{
		t: t, log: filepath.Join(t.TempDir(), "log"),
		pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"}},
	}
	for _, p := range providers {
		if err := os.WriteFile(filepath.Join(bin, p.Name), []byte(plugin), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	w.Plugins = New(Config{
		Providers: &credentialconfig.Config{Providers: providers, BinDir: bin, Hash: "sha256:1"},
		Accounts:  w, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		Environ: []string{"PATH=" + os.Getenv("PATH"), "LOG=" + w.log, "ANSWER=overwritten"}, Timeout: time.Minute,
	})
	return w
}

// asked returns what the plugins were asked: the version, the image, the token,
// the annotations and the arguments of each run.
func (w *world) asked() (all []string) {
	data, err := os.ReadFile(w.log)
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var r credentialproviderapi.CredentialProviderRequest
		dec := json.NewDecoder(strings.NewReader(line))
		if err := dec.Decode(&r); err != nil {
			w.t.Fatalf("%q: %v", line, err)
		}
		rest, _ := io.ReadAll(dec.Buffered())
		all = append(all, fmt.Sprint(r.Kind, " ", r.APIVersion, " ", r.Image, " ", r.ServiceAccountToken, " ", r.ServiceAccountAnnotations, strings.TrimSuffix(string(rest), "\n")))
	}
	return all
}

// want checks the users of the credentials of an image.
func (w *world) want(image string, users ...string) {
	w.t.Helper()
	got, err := w.Credentials(w.t.Context(), w.pod, image)
	if err != nil {
		w.t.Error(err)
	}
	var names []string
	for _, c := range got {
		names = append(names, c.Auth.GetUsername())
	}
	if diff := cmp.Diff(names, users); diff != "" {
		w.t.Errorf("%s: got -, want +:\n%s", image, diff)
	}
}

func (w *world) wantRuns(n int) {
	w.t.Helper()
	if got := w.asked(); len(got) != n {
		w.t.Errorf("got %d runs, want %d: %q", len(got), n, got)
	}
}

func TestAsks(t *testing.T) {
	p := named("p", answer("Image", auth(login("*.example", "ann"))))
	p.Args = []string{"--fast"}
	w := newWorld(t, p)
	w.want("reg.example/team/a:1@sha256:"+strings.Repeat("0", 64), "ann")
	w.want("elsewhere.org/a")
	w.want("busybox")
	if diff := cmp.Diff(w.asked(), []string{"CredentialProviderRequest " + version + " reg.example/team/a  map[] --fast"}); diff != "" {
		t.Errorf("asked: got -, want +:\n%s", diff)
	}
}

func TestOrder(t *testing.T) {
	first := named("first", answer("Image", auth(login("reg.example", "host")+","+login("*.example", "glob")+","+login("other.example", "other"))))
	second := named("second", answer("Image", auth(login("https://reg.example/v1/team", "path")+","+login("reg.example", "later"))))
	silent := named("silent", answer("Image", ""))
	w := newWorld(t, first, second, silent)
	w.want("reg.example/team/a", "path", "host", "later", "glob")
}

func TestCache(t *testing.T) {
	for _, test := range []struct {
		kind      string
		duration  string // of the answer
		byDefault time.Duration
		runs      int // for two images of one registry and one of another, each twice
	}{
		{"Image", `,"cacheDuration":"1h"`, 0, 3},
		{"Registry", `,"cacheDuration":"1h"`, 0, 2},
		{"Global", `,"cacheDuration":"1h"`, 0, 1},
		{"Image", "", time.Hour, 3},
		{"Image", "", 0, 6},
		{"Image", `,"cacheDuration":"0s"`, time.Hour, 6},
		{"Image", `,"cacheDuration":"1ns"`, time.Hour, 6},
	} {
		t.Run(fmt.Sprint(test.kind, test.duration, test.byDefault), func(t *testing.T) {
			p := named("p", answer(test.kind, test.duration+auth(login("*.example", "ann"))))
			p.DefaultCacheDuration.Duration = test.byDefault
			w := newWorld(t, p)
			for range 2 {
				for _, image := range []string{"a.example/x:1", "a.example/y", "b.example/x"} {
					w.want(image, "ann")
				}
			}
			w.wantRuns(test.runs)
		})
	}
}

func TestOneRunAtATime(t *testing.T) {
	w := newWorld(t, named("p", answer("Image", `,"cacheDuration":"1h"`+auth(login("*.example", "ann")))))
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() { w.want("a.example/x", "ann") })
	}
	all.Wait()
	w.wantRuns(1)
}

func TestServiceAccount(t *testing.T) {
	withToken := func(kind kubeletconfig.ServiceAccountTokenCacheType, required bool) kubeletconfig.CredentialProvider {
		p := named("p", answer("Registry", `,"cacheDuration":"1h"`+auth(login("*.example", "ann"))))
		p.TokenAttributes = &kubeletconfig.ServiceAccountTokenAttributes{ServiceAccountTokenAudience: "reg", CacheType: kind, RequireServiceAccount: &required}
		if required {
			p.TokenAttributes.RequiredServiceAccountAnnotationKeys = []string{"role"}
		}
		p.TokenAttributes.OptionalServiceAccountAnnotationKeys = []string{"zone"}
		return p
	}
	account := func() *v1.ServiceAccount {
		return &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "shop", UID: "su", Annotations: map[string]string{"role": "reader", "zone": "1", "secret": "x"}}}
	}
	second := func(w *world) {
		w.pod = w.pod.DeepCopy()
		w.pod.Name, w.pod.UID = "db", "u2"
	}
	t.Run("token and annotations", func(t *testing.T) {
		w := newWorld(t, withToken("ServiceAccount", true))
		w.account, w.pod.Spec.ServiceAccountName = account(), "s"
		got, err := w.Credentials(t.Context(), w.pod, "a.example/x")
		if err != nil || len(got) != 1 || got[0].Account == nil || got[0].Account.UID != "su" || got[0].Secret != nil {
			t.Errorf("got %+v, %v, want one of the account", got, err)
		}
		if diff := cmp.Diff(w.asked(), []string{"CredentialProviderRequest " + version + " a.example/x token-of-web map[role:reader zone:1] "}); diff != "" {
			t.Errorf("asked: got -, want +:\n%s", diff)
		}
		r := w.requests[0]
		if r.UID != "su" || !slices.Equal(r.Spec.Audiences, []string{"reg"}) || r.Spec.BoundObjectRef.UID != types.UID("u1") {
			t.Errorf("asked for a token of %+v", r)
		}
		second(w)
		w.want("a.example/x", "ann")
		w.wantRuns(1)
		w.account.Annotations["role"] = "writer"
		w.want("a.example/x", "ann")
		w.wantRuns(2)
	})
	t.Run("each token by itself", func(t *testing.T) {
		w := newWorld(t, withToken("Token", true))
		w.account, w.pod.Spec.ServiceAccountName = account(), "s"
		w.want("a.example/x", "ann")
		second(w)
		w.want("a.example/x", "ann")
		w.wantRuns(2)
	})
	t.Run("an annotation is missing", func(t *testing.T) {
		w := newWorld(t, withToken("ServiceAccount", true))
		w.account, w.pod.Spec.ServiceAccountName = account(), "s"
		delete(w.account.Annotations, "role")
		w.want("a.example/x")
		w.wantRuns(0)
	})
	t.Run("no account, and one is required", func(t *testing.T) {
		w := newWorld(t, withToken("ServiceAccount", true))
		w.want("a.example/x")
		w.wantRuns(0)
	})
	t.Run("no account, and none is required", func(t *testing.T) {
		w := newWorld(t, withToken("ServiceAccount", false))
		w.want("a.example/x", "ann")
		if diff := cmp.Diff(w.asked(), []string{"CredentialProviderRequest " + version + " a.example/x  map[] "}); diff != "" {
			t.Errorf("asked: got -, want +:\n%s", diff)
		}
	})
	t.Run("an account that is not there", func(t *testing.T) {
		w := newWorld(t, withToken("ServiceAccount", true))
		w.pod.Spec.ServiceAccountName = "s"
		if _, err := w.Credentials(t.Context(), w.pod, "a.example/x"); err == nil || !strings.Contains(err.Error(), "provider p: service account shop/s: not found") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the token for a password", func(t *testing.T) {
		for kind, works := range map[kubeletconfig.ServiceAccountTokenCacheType]bool{"ServiceAccount": false, "Token": true} {
			p := withToken(kind, true)
			p.Env[0].Value = answer("Image", auth(`"*.example":{"username":"","password":"token-of-web"}`))
			w := newWorld(t, p)
			w.account, w.pod.Spec.ServiceAccountName = account(), "s"
			_, err := w.Credentials(t.Context(), w.pod, "a.example/x")
			if works != (err == nil) || err != nil && !strings.Contains(err.Error(), "wants tokenAttributes.cacheType: Token") {
				t.Errorf("%s: got %v", kind, err)
			}
		}
	})
}

func TestFailures(t *testing.T) {
	for name, test := range map[string]struct{ plugin, answer, want string }{
		"fails":             {"fails", "", "exit status 3 (the node's log has what it said)"},
		"hangs":             {"hangs", "", "it did not answer within"},
		"talks too much":    {"talks", "", "its answer has more than 1048576 bytes"},
		"no answer":         {"p", "", "its answer is no CredentialProviderResponse"},
		"another version":   {"p", `{"apiVersion":"v9","kind":"CredentialProviderResponse"}`, `its answer is a "CredentialProviderResponse" of "v9"`},
		"an unknown field":  {"p", answer("Image", `,"more":1`), "a field is unknown"},
		"no kind of key":    {"p", answer("", ""), `its answer has cacheKeyType ""`},
		"two answers":       {"p", answer("Image", "") + answer("Image", ""), "its answer is no CredentialProviderResponse"},
		"a negative time":   {"p", answer("Image", `,"cacheDuration":"-1s"`), "less than none"},
		"a secret in error": {"p", answer("Image", `,"auth":"s3cret"`), "its answer is no CredentialProviderResponse"},
	} {
		t.Run(name, func(t *testing.T) {
			good := named("good", answer("Image", auth(login("*.example", "ann"))))
			w := newWorld(t, named(test.plugin, test.answer), good)
			if test.plugin == "hangs" {
				w.cfg.Timeout = 500 * time.Millisecond
			}
			got, err := w.Credentials(t.Context(), w.pod, "a.example/x")
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "image credential provider "+test.plugin+": ") {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Error("the error tells a secret")
			}
			if test.plugin != "hangs" && (len(got) != 1 || got[0].Auth.GetUsername() != "ann") {
				t.Errorf("got %v, want what the other provider says", got)
			}
			want := 0.0
			if test.plugin != "p" {
				want = 1
			}
			if n := testutil.ToFloat64(w.metrics.errors.WithLabelValues(test.plugin)); n != want {
				t.Errorf("the metric says %v, want %v", n, want)
			}
		})
	}
	t.Run("it leaves something running that holds its output", func(t *testing.T) {
		w := newWorld(t, named("leaves", answer("Image", auth(login("*.example", "ann")))))
		w.want("a.example/x", "ann")
	})
	t.Run("cancelled", func(t *testing.T) {
		w := newWorld(t, named("hangs", ""))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := w.Credentials(ctx, w.pod, "a.example/x")
			done <- err
		}()
		for len(w.asked()) == 0 {
			<-time.After(time.Millisecond)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(answer("Image", `,"cacheDuration":"1h"`+auth(login("a", "b")))))
	f.Add([]byte(`{"apiVersion":"` + version + `","kind":"CredentialProviderResponse"} x`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decode(data, version)
		if (got == nil) == (err == nil) {
			t.Fatalf("got %v, %v", got, err)
		}
		if got == nil {
			return
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := decode(again, version)
		if err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if diff := cmp.Diff(got.Auth, twice.Auth); diff != "" {
			t.Error(diff)
		}
	})
}
