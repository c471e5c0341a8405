package podfiles

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// A Credential is worth one try of a pull.
type Credential struct {
	Auth *runtimeapi.AuthConfig
	// Secret or Account is where it comes from, if it is not every pod's on this
	// node: who has the same may use what was pulled with it.
	Secret  *kubeletconfig.ImagePullSecret
	Account *kubeletconfig.ImagePullServiceAccount
}

// hub is the registry of a name without one; the keys beside it are what
// people and tools write for it.
const hub = "docker.io"

var hubKeys = []string{"docker.io", "index.docker.io", "registry-1.docker.io"}

// A registryAuth is one entry of a registry configuration.
type registryAuth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"` // base64 of user:password
	Email         string `json:"email"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// Credentials returns what the secrets hold for an image, the most specific
// registry path first; each is worth one try. A secret that is not of a
// registry's type is skipped; one that does not parse is an error that does not
// hide the others' result.
func Credentials(secrets []*v1.Secret, image string) ([]Credential, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil, fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	host, repo := reference.Domain(named), reference.Path(named)
	type found struct {
		key string
		Credential
	}
	var all []found
	var bad error
	for _, s := range secrets {
		auths, err := registryAuths(s)
		if err != nil {
			bad = fmt.Errorf("secret %s/%s: %w", s.Namespace, s.Name, err)
			continue
		}
		for key, a := range auths {
			if !matches(key, host, repo) {
				continue
			}
			auth, err := a.config()
			if err != nil {
				bad = fmt.Errorf("secret %s/%s: registry %q: %w", s.Namespace, s.Name, key, err)
				continue
			}
			all = append(all, found{strip(key), Credential{Auth: auth, Secret: &kubeletconfig.ImagePullSecret{
				UID: string(s.UID), Namespace: s.Namespace, Name: s.Name, CredentialHash: a.hash(auth),
			}}})
		}
	}
	slices.SortStableFunc(all, func(a, b found) int {
		return cmp.Or(cmp.Compare(len(b.key), len(a.key)), strings.Compare(a.key, b.key))
	})
	out := make([]Credential, 0, len(all))
	for _, f := range all {
		out = append(out, f.Credential)
	}
	return out, bad
}

// Repository returns the name of an image with its registry and without tag and
// digest, such as docker.io/library/busybox.
func Repository(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	return named.Name(), nil
}

// registryAuths decodes a secret of either registry type.
func registryAuths(s *v1.Secret) (map[string]registryAuth, error) {
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
		var config struct {
			Auths map[string]registryAuth `json:"auths"`
		}
		err := json.Unmarshal(s.Data[v1.DockerConfigJsonKey], &config)
		return config.Auths, err
	case v1.SecretTypeDockercfg:
		var auths map[string]registryAuth
		err := json.Unmarshal(s.Data[v1.DockerConfigKey], &auths)
		return auths, err
	default:
		return nil, nil
	}
}

func (a registryAuth) config() (*runtimeapi.AuthConfig, error) {
	out := &runtimeapi.AuthConfig{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken}
	if a.Auth == "" {
		return out, nil
	}
	raw, err := base64.StdEncoding.DecodeString(a.Auth)
	if err != nil {
		raw, err = base64.RawStdEncoding.DecodeString(a.Auth) // some tools leave out the padding
	}
	if err != nil {
		return nil, fmt.Errorf("auth is not base64")
	}
	user, password, ok := strings.Cut(string(raw), ":")
	if !ok {
		return nil, fmt.Errorf("auth has no colon")
	}
	out.Username, out.Password = user, password
	return out, nil
}

// hash tells two credentials apart without keeping them. It is upstream's, so
// that records of pulls say the same.
func (a registryAuth) hash(auth *runtimeapi.AuthConfig) string {
	data, err := json.Marshal(struct {
		Username      string `json:"username,omitempty"`
		Password      string `json:"password,omitempty"`
		Email         string `json:"email,omitempty"`
		IdentityToken string `json:"identitytoken,omitempty"`
		RegistryToken string `json:"registrytoken,omitempty"`
	}{auth.GetUsername(), auth.GetPassword(), a.Email, auth.GetIdentityToken(), auth.GetRegistryToken()})
	if err != nil {
		return "" // of strings: it cannot be; an empty hash equals none
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// strip cuts what keys carry over from URLs: the scheme, and the API version of
// old registries.
func strip(key string) string {
	key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	key = strings.TrimSuffix(key, "/")
	for _, version := range []string{"/v1", "/v2"} {
		key = strings.TrimSuffix(key, version)
	}
	return key
}

// matches reports whether a key is for an image: its host, part by part with
// globs, and its path as a prefix of whole segments.
func matches(key, host, repo string) bool {
	keyHost, keyPath, _ := strings.Cut(strip(key), "/")
	if slices.Contains(hubKeys, keyHost) {
		keyHost = hub
	}
	return globHost(keyHost, host) && (keyPath == "" || keyPath == repo || strings.HasPrefix(repo, keyPath+"/"))
}

func globHost(pattern, host string) bool {
	want, got := strings.Split(pattern, "."), strings.Split(host, ".")
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if ok, err := path.Match(want[i], got[i]); err != nil || !ok {
			return false
		}
	}
	return true
}
