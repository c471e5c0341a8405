package credentialprovider

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1"
	credentialproviderapi "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
)

// The kinds of key, in the order in which they are looked for.
const (
	byImage    = credentialproviderapi.ImagePluginCacheKeyType
	byRegistry = credentialproviderapi.RegistryPluginCacheKeyType
	byNothing  = credentialproviderapi.GlobalPluginCacheKeyType
)

// A cacheKey is what an answer is kept by.
type cacheKey struct {
	kind    credentialproviderapi.PluginCacheKeyType
	what    string // repository or registry
	account string // whom it is for
}

// keyOf returns the key of an image.
func keyOf(kind credentialproviderapi.PluginCacheKeyType, repository, account string) cacheKey {
	switch kind {
	case byImage:
		return cacheKey{kind, repository, account}
	case byRegistry:
		registry, _, _ := strings.Cut(repository, "/")
		return cacheKey{kind, registry, account}
	default:
		return cacheKey{kind, "", account}
	}
}

// accountKey is the part of a key that stands for a service account, and for
// the very token where that is what an answer is good for.
func accountKey(who *identity, kind kubeletconfig.ServiceAccountTokenCacheType) string {
	parts := []any{who.account.Namespace, who.account.Name, who.account.UID, who.annotations}
	if kind == kubeletconfig.TokenServiceAccountTokenCacheType {
		parts = append(parts, fmt.Sprintf("%x", sha256.Sum256([]byte(who.token))))
	}
	key, err := json.Marshal(parts) // maps come out sorted
	if err != nil {
		panic(err) // strings: it cannot be
	}
	return string(key)
}

// A cache keeps answers of one program.
type cache struct {
	mu      sync.Mutex // guards answers
	answers map[cacheKey]kept
}

type kept struct {
	auth  map[string]credentialproviderapi.AuthConfig // never changed
	until time.Time
}

func newCache() *cache { return &cache{answers: map[cacheKey]kept{}} }

// get returns what is kept for an image.
func (c *cache) get(repository, account string) (map[string]credentialproviderapi.AuthConfig, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range []credentialproviderapi.PluginCacheKeyType{byImage, byRegistry, byNothing} {
		if k, ok := c.answers[keyOf(kind, repository, account)]; ok && time.Now().Before(k.until) {
			return k.auth, true
		}
	}
	return nil, false
}

// put keeps an answer, unless its time is over at once, and forgets those whose
// time is over.
func (c *cache) put(kind credentialproviderapi.PluginCacheKeyType, repository, account string, answer kept) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for key, k := range c.answers {
		if !now.Before(k.until) {
			delete(c.answers, key)
		}
	}
	if now.Before(answer.until) {
		c.answers[keyOf(kind, repository, account)] = answer
	}
}
