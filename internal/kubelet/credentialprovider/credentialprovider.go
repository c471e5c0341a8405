// Package credentialprovider asks programs for the credentials of images: the
// upstream kubelet's image credential provider plugins.
//
// A program is run for an image that it is configured for, with a
// CredentialProviderRequest on its standard input, perhaps with a token of the
// pod's service account, and answers with a CredentialProviderResponse. Answers
// are kept in memory for as long as they say.
//
// All methods may be called from any goroutine. What one image and account are
// asked for is asked by one caller at a time; programs of different ones run side
// by side. A program that is still running when its time is up, or its caller's,
// is killed with all that it started.
package credentialprovider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1"
	records "k8s.io/kubelet/config/v1beta1"
	credentialproviderapi "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/credentialconfig"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// accounts are the service accounts of the API.
type accounts interface {
	GetServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
	Token(ctx context.Context, namespace, serviceAccount string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// Config says which programs there are. Required but what says otherwise.
type Config struct {
	Providers *credentialconfig.Config
	Accounts  accounts
	Metrics   prometheus.Registerer // nil: nobody takes them
	Log       *slog.Logger

	Environ []string      // of programs, before their own variables; default: this process's
	Timeout time.Duration // of one run; default 1 min, as upstream's
}

// Plugins are the programs of one node.
type Plugins struct {
	cfg       Config
	providers []*provider
	metrics   metrics
}

// New returns the programs of cfg. None is run yet.
func New(cfg Config) *Plugins {
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Minute)
	if cfg.Environ == nil {
		cfg.Environ = os.Environ()
	}
	p := &Plugins{cfg: cfg, metrics: newMetrics(cfg.Metrics, cfg.Providers.Hash)}
	for i := range cfg.Providers.Providers {
		p.providers = append(p.providers, &provider{
			CredentialProvider: cfg.Providers.Providers[i], plugins: p, cache: newCache(), turns: map[cacheKey]chan struct{}{},
		})
	}
	return p
}

// Credentials returns what the programs know for an image of a pod. A program
// that fails is an error that does not hide what others say.
func (p *Plugins) Credentials(ctx context.Context, pod *v1.Pod, image string) ([]podfiles.Credential, error) {
	repository, err := podfiles.Repository(image)
	if err != nil {
		return nil, err
	}
	var all []entry
	var errs []error
	for _, provider := range p.providers {
		if !provider.isFor(repository) {
			continue
		}
		found, err := provider.ask(ctx, pod, repository)
		if err != nil {
			err = fmt.Errorf("image credential provider %s: %w", provider.Name, err)
			if ctx.Err() == nil {
				p.cfg.Log.Error("image credential provider failed", "image", image, "pod", pod.Namespace+"/"+pod.Name, "err", err)
			}
			errs = append(errs, err)
		}
		all = append(all, found...)
	}
	return choose(all, repository), errors.Join(errs...)
}

// An entry is one credential of an answer, with the images that it is for.
type entry struct {
	pattern string
	podfiles.Credential
}

// choose returns the credentials that are for an image: the more special before
// the general, of the same pattern those of the earlier provider first.
func choose(all []entry, repository string) []podfiles.Credential {
	slices.SortStableFunc(all, func(a, b entry) int { return strings.Compare(b.pattern, a.pattern) })
	var out []podfiles.Credential
	for _, e := range all {
		if credentialconfig.Matches(e.pattern, repository) {
			out = append(out, e.Credential)
		}
	}
	return out
}

// A provider is one program.
type provider struct {
	kubeletconfig.CredentialProvider
	plugins *Plugins
	cache   *cache

	turns map[cacheKey]chan struct{} // guarded by cache.mu; each is closed when its turn is over
}

func (p *provider) isFor(repository string) bool {
	return slices.ContainsFunc(p.MatchImages, func(pattern string) bool { return credentialconfig.Matches(pattern, repository) })
}

// An identity is what a program is told of whom it answers for.
type identity struct {
	account     *records.ImagePullServiceAccount // nil: nobody
	token       string
	annotations map[string]string
	key         string // of the cache
}

// ask returns what the program, or the cache, says for an image of a pod.
func (p *provider) ask(ctx context.Context, pod *v1.Pod, repository string) ([]entry, error) {
	who, err := p.identify(ctx, pod)
	if err != nil || who == nil {
		return nil, err
	}
	release, err := p.take(ctx, cacheKey{byImage, repository, who.key})
	if err != nil {
		return nil, err
	}
	defer release()
	auth, kept := p.cache.get(repository, who.key)
	if !kept {
		answer, err := p.run(ctx, repository, who)
		if err != nil {
			return nil, err
		}
		if err := p.check(answer, who); err != nil {
			return nil, err
		}
		p.keep(answer, repository, who)
		auth = answer.Auth
	}
	entries := make([]entry, 0, len(auth))
	for pattern, a := range auth {
		entries = append(entries, entry{bare(pattern), podfiles.Credential{
			Auth: &runtimeapi.AuthConfig{Username: a.Username, Password: a.Password}, Account: who.account,
		}})
	}
	return entries, nil
}

// bare cuts from a pattern what people write though it means nothing, as upstream
// does.
func bare(pattern string) string {
	pattern = strings.TrimPrefix(strings.TrimPrefix(pattern, "https://"), "http://")
	host, path, _ := strings.Cut(pattern, "/")
	if host == "index.docker.io" {
		host = "docker.io" // as the names of images have it
	}
	for _, version := range []string{"v1/", "v2/"} {
		path = strings.TrimPrefix(path, version)
	}
	if path == "" {
		return host
	}
	return host + "/" + path
}

// identify returns on whose behalf the program is asked: nil if it is not to be
// asked for this pod.
func (p *provider) identify(ctx context.Context, pod *v1.Pod) (*identity, error) {
	want, name := p.TokenAttributes, pod.Spec.ServiceAccountName
	switch {
	case want == nil, name == "" && !*want.RequireServiceAccount:
		return &identity{}, nil
	case name == "":
		return nil, nil
	}
	account, err := p.plugins.cfg.Accounts.GetServiceAccount(ctx, pod.Namespace, name)
	if err != nil {
		return nil, fmt.Errorf("service account %s/%s: %w", pod.Namespace, name, err)
	}
	who := &identity{
		account:     &records.ImagePullServiceAccount{UID: string(account.UID), Namespace: pod.Namespace, Name: name},
		annotations: map[string]string{},
	}
	for _, key := range want.RequiredServiceAccountAnnotationKeys {
		value, ok := account.Annotations[key]
		if !ok {
			// It is how a service account says that it wants this provider.
			p.plugins.cfg.Log.Debug("service account lacks an annotation that the provider requires", "serviceAccount", pod.Namespace+"/"+name, "why", key)
			return nil, nil
		}
		who.annotations[key] = value
	}
	for _, key := range want.OptionalServiceAccountAnnotationKeys {
		if value, ok := account.Annotations[key]; ok {
			who.annotations[key] = value
		}
	}
	request := podvolumes.TokenRequest(pod, &v1.ServiceAccountTokenProjection{Audience: want.ServiceAccountTokenAudience})
	request.UID = account.UID
	token, err := p.plugins.cfg.Accounts.Token(ctx, pod.Namespace, name, request)
	if err != nil {
		return nil, fmt.Errorf("token of service account %s/%s: %w", pod.Namespace, name, err)
	}
	who.token = token.Status.Token
	who.key = accountKey(who, want.CacheType)
	return who, nil
}

// check returns why an answer cannot be used.
func (p *provider) check(answer *credentialproviderapi.CredentialProviderResponse, who *identity) error {
	switch answer.CacheKeyType {
	case credentialproviderapi.ImagePluginCacheKeyType, credentialproviderapi.RegistryPluginCacheKeyType, credentialproviderapi.GlobalPluginCacheKeyType:
	default:
		return fmt.Errorf("its answer has cacheKeyType %q: want Image, Registry or Global", answer.CacheKeyType)
	}
	if who.token == "" || p.TokenAttributes.CacheType == kubeletconfig.TokenServiceAccountTokenCacheType {
		return nil
	}
	for _, a := range answer.Auth {
		if a.Password == who.token {
			// It would be given to other pods of the account, and longer than it is good.
			return errors.New("its answer has the service account's token for a password, which wants tokenAttributes.cacheType: Token")
		}
	}
	return nil
}

// keep keeps an answer for as long as it, or else the configuration, says.
func (p *provider) keep(answer *credentialproviderapi.CredentialProviderResponse, repository string, who *identity) {
	duration := p.DefaultCacheDuration
	if answer.CacheDuration != nil {
		duration = answer.CacheDuration
	}
	p.cache.put(answer.CacheKeyType, repository, who.key, kept{answer.Auth, time.Now().Add(duration.Duration)})
}

// take waits for this caller's turn to ask for something.
func (p *provider) take(ctx context.Context, key cacheKey) (release func(), err error) {
	for {
		p.cache.mu.Lock()
		before := p.turns[key]
		if before == nil {
			over := make(chan struct{})
			p.turns[key] = over
			p.cache.mu.Unlock()
			return func() {
				p.cache.mu.Lock()
				defer p.cache.mu.Unlock()
				delete(p.turns, key)
				close(over)
			}, nil
		}
		p.cache.mu.Unlock()
		select {
		case <-before:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
