package credentialconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	kubeletconfig "k8s.io/kubelet/config/v1"
)

// check returns everything that is wrong with one provider, by upstream's rules.
// at is its place.
func check(at string, p *kubeletconfig.CredentialProvider) error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s.%s: %w", at, field, fmt.Errorf(format, args...)))
	}
	if err := checkName(p.Name); err != nil {
		wrong("name", "%w", err)
	}
	if !slices.Contains(protocolVersions, p.APIVersion) {
		wrong("apiVersion", "%q: want %s", p.APIVersion, strings.Join(protocolVersions, ", "))
	}
	if len(p.MatchImages) == 0 {
		wrong("matchImages", "there is none")
	}
	for i, pattern := range p.MatchImages {
		if _, err := parsePattern(pattern); err != nil {
			wrong(fmt.Sprintf("matchImages[%d]", i), "%w", err)
		}
	}
	switch {
	case p.DefaultCacheDuration == nil:
		wrong("defaultCacheDuration", "it is missing: write 0s to keep nothing")
	case p.DefaultCacheDuration.Duration < 0:
		wrong("defaultCacheDuration", "%v must not be negative", p.DefaultCacheDuration.Duration)
	}
	for i, e := range p.Env {
		if e.Name == "" || strings.ContainsAny(e.Name, "=\x00") || strings.Contains(e.Value, "\x00") {
			wrong(fmt.Sprintf("env[%d]", i), "%q is no name of a variable, or its value has a zero byte", e.Name)
		}
	}
	if p.TokenAttributes != nil {
		if p.APIVersion != latest {
			wrong("tokenAttributes", "only apiVersion %s knows it", latest)
		}
		checkToken(p.TokenAttributes, func(field, format string, args ...any) { wrong("tokenAttributes."+field, format, args...) })
	}
	return errors.Join(errs...)
}

// checkName says why name cannot be that of a program in a folder.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/ \x00") {
		return fmt.Errorf("%q: want the name of a program, without / and spaces", name)
	}
	return nil
}

func checkToken(a *kubeletconfig.ServiceAccountTokenAttributes, wrong func(field, format string, args ...any)) {
	if a.ServiceAccountTokenAudience == "" {
		wrong("serviceAccountTokenAudience", "it is missing")
	}
	if a.RequireServiceAccount == nil {
		wrong("requireServiceAccount", "it is missing")
	} else if !*a.RequireServiceAccount && len(a.RequiredServiceAccountAnnotationKeys) > 0 {
		wrong("requiredServiceAccountAnnotationKeys", "there may be none where requireServiceAccount is false")
	}
	if a.CacheType != kubeletconfig.TokenServiceAccountTokenCacheType && a.CacheType != kubeletconfig.ServiceAccountServiceAccountTokenCacheType {
		wrong("cacheType", "%q: want %s or %s", a.CacheType, kubeletconfig.ServiceAccountServiceAccountTokenCacheType, kubeletconfig.TokenServiceAccountTokenCacheType)
	}
	seen := map[string]bool{}
	for _, list := range []struct {
		field string
		keys  []string
	}{
		{"requiredServiceAccountAnnotationKeys", a.RequiredServiceAccountAnnotationKeys},
		{"optionalServiceAccountAnnotationKeys", a.OptionalServiceAccountAnnotationKeys},
	} {
		for i, key := range list.keys {
			field := fmt.Sprintf("%s[%d]", list.field, i)
			for _, problem := range validation.IsQualifiedName(strings.ToLower(key)) {
				wrong(field, "%q: %s", key, problem)
			}
			if seen[key] {
				wrong(field, "%q is there twice", key)
			}
			seen[key] = true
		}
	}
}
