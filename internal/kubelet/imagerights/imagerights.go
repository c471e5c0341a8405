// Package imagerights decides who may use an image that is on this machine
// without asking its registry again: a pod must not get with no credentials what
// another one pulled with its secret.
//
// What is known of an image is its record, upstream's ImagePulledRecord: under
// which names it was pulled, and with whose credentials. Everything here is a pure
// function; package pullrecords keeps the records.
package imagerights

import (
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

// maxLearned is how many secrets a record has at most of those that were only
// found to hold the same credentials, as upstream's: a namespace made anew each
// hour must not make it grow for ever.
const maxLearned = 100

// maxKnown is how many secrets, and how many service accounts, a record has at
// most, the latest: each pull may add one, for as long as the image is there. A
// pod whose secret is no longer known asks the registry again.
const maxKnown = 500

// A Policy says for which images a pod has to show that it may have them. The
// zero value is NeverVerifyPreloadedImages.
type Policy struct {
	Kind kubeletconfig.ImagePullCredentialsVerificationPolicy
	// Allowlist names the images that NeverVerifyAllowlistedImages asks nothing
	// for: names without tag and digest, or whole parts of a path with /* at their
	// end.
	Allowlist []string
}

// Check returns what is wrong with p, by upstream's rules, as what is to follow
// the name of upstream's field.
func (p Policy) Check() error {
	switch p.Kind {
	case "", kubeletconfig.NeverVerify, kubeletconfig.NeverVerifyPreloadedImages, kubeletconfig.AlwaysVerify:
		if len(p.Allowlist) > 0 {
			return fmt.Errorf("preloadedImagesVerificationAllowlist is only for imagePullCredentialsVerificationPolicy %s", kubeletconfig.NeverVerifyAllowlistedImages)
		}
		return nil
	case kubeletconfig.NeverVerifyAllowlistedImages:
	default:
		return fmt.Errorf("imagePullCredentialsVerificationPolicy %q is not known: %s, %s, %s or %s", p.Kind,
			kubeletconfig.NeverVerify, kubeletconfig.NeverVerifyPreloadedImages, kubeletconfig.NeverVerifyAllowlistedImages, kubeletconfig.AlwaysVerify)
	}
	for i, pattern := range p.Allowlist {
		if err := checkPattern(pattern); err != nil {
			return fmt.Errorf("preloadedImagesVerificationAllowlist[%d] %q %w", i, pattern, err)
		}
	}
	return nil
}

func checkPattern(pattern string) error {
	name, wild := strings.CutSuffix(pattern, "/*")
	switch {
	case pattern != strings.TrimSpace(pattern):
		return fmt.Errorf("has spaces around it")
	case name == "":
		return fmt.Errorf("names no registry")
	case strings.Contains(name, "*"):
		return fmt.Errorf("has a * that is not a whole last part: only /* at the end is one")
	case wild:
		return nil
	}
	bare, err := Name(name)
	if err != nil {
		return fmt.Errorf("is no name of an image: %w", err)
	}
	if bare != name {
		return fmt.Errorf("has a tag or a digest: write %s", bare)
	}
	return nil
}

// Verify reports whether a pod has to show that it may have an image of that
// name. pulled is whether this node pulled it once, rather than that somebody put
// it there.
func (p Policy) Verify(name string, pulled bool) bool {
	switch p.Kind {
	case kubeletconfig.NeverVerify:
		return false
	case kubeletconfig.AlwaysVerify:
		return true
	case kubeletconfig.NeverVerifyAllowlistedImages:
		return !slices.ContainsFunc(p.Allowlist, func(pattern string) bool {
			prefix, wild := strings.CutSuffix(pattern, "*")
			return wild && strings.HasPrefix(name, prefix) || name == pattern
		})
	default:
		return pulled
	}
}

// Name returns what records call an image that a pod names: without its tag and
// its digest, and else as it is written there.
func Name(image string) (string, error) {
	parsed, err := reference.Parse(image)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	if digested, ok := parsed.(reference.Digested); ok {
		image = strings.TrimSuffix(image, "@"+digested.Digest().String())
	}
	if tagged, ok := parsed.(reference.Tagged); ok {
		image = strings.TrimSuffix(image, ":"+tagged.Tag())
	}
	return image, nil
}

// Judge reports whether a pod may use an image by its record, and if it may
// whose credentials the record lacks. credentials, the pod's for that image, is
// called only where they matter. A record may be nil: nobody knows who may.
func Judge(record *kubeletconfig.ImagePulledRecord, name string, credentials func() []podfiles.Credential) (may bool, learned *kubeletconfig.ImagePullSecret) {
	if record == nil {
		return false, nil
	}
	known := record.CredentialMapping[name]
	if known.NodePodsAccessible {
		return true, nil
	}
	if len(known.KubernetesSecrets) == 0 && len(known.KubernetesServiceAccounts) == 0 {
		return false, nil
	}
	var account *kubeletconfig.ImagePullServiceAccount
	for _, c := range credentials() {
		if c.Secret != nil {
			if may, learned := judgeSecret(known.KubernetesSecrets, *c.Secret); may {
				return true, learned
			}
		}
		if account == nil {
			account = c.Account
		}
	}
	return account != nil && slices.Contains(known.KubernetesServiceAccounts, *account), nil
}

// judgeSecret looks for a secret with the same credentials, or for the same
// secret: what it holds now is as good as what it held then.
func judgeSecret(known []kubeletconfig.ImagePullSecret, secret kubeletconfig.ImagePullSecret) (may bool, learned *kubeletconfig.ImagePullSecret) {
	for _, k := range known {
		hash := k.CredentialHash != "" && k.CredentialHash == secret.CredentialHash
		same := sameSecret(k, secret)
		switch {
		case hash && same:
			return true, nil
		case !hash && !same:
			continue
		case len(known) < maxLearned:
			return true, &secret
		default:
			return true, nil
		}
	}
	return false, nil
}

func sameSecret(a, b kubeletconfig.ImagePullSecret) bool {
	return a.UID == b.UID && a.Namespace == b.Namespace && a.Name == b.Name
}

// By returns who may use what was pulled with a credential, nil for none: all
// pods of the node, or those with the same secret or service account.
func By(c *podfiles.Credential) kubeletconfig.ImagePullCredentials {
	switch {
	case c != nil && c.Secret != nil:
		return kubeletconfig.ImagePullCredentials{KubernetesSecrets: []kubeletconfig.ImagePullSecret{*c.Secret}}
	case c != nil && c.Account != nil:
		return kubeletconfig.ImagePullCredentials{KubernetesServiceAccounts: []kubeletconfig.ImagePullServiceAccount{*c.Account}}
	default:
		return kubeletconfig.ImagePullCredentials{NodePodsAccessible: true}
	}
}

// Add returns known with who else may use the image, and whether that is
// another. What all pods may use stays so.
func Add(known, more kubeletconfig.ImagePullCredentials) (sum kubeletconfig.ImagePullCredentials, changed bool) {
	if known.NodePodsAccessible {
		return known, false
	}
	if more.NodePodsAccessible {
		return kubeletconfig.ImagePullCredentials{NodePodsAccessible: true}, true
	}
	sum.KubernetesSecrets = slices.Clone(known.KubernetesSecrets)
	for _, secret := range more.KubernetesSecrets {
		i := slices.IndexFunc(sum.KubernetesSecrets, func(k kubeletconfig.ImagePullSecret) bool { return sameSecret(k, secret) })
		switch {
		case i < 0:
			sum.KubernetesSecrets, changed = append(sum.KubernetesSecrets, secret), true
		case sum.KubernetesSecrets[i] != secret:
			sum.KubernetesSecrets[i], changed = secret, true
		}
	}
	sum.KubernetesServiceAccounts = slices.Clone(known.KubernetesServiceAccounts)
	for _, account := range more.KubernetesServiceAccounts {
		if !slices.Contains(sum.KubernetesServiceAccounts, account) {
			sum.KubernetesServiceAccounts, changed = append(sum.KubernetesServiceAccounts, account), true
		}
	}
	sum.KubernetesSecrets, sum.KubernetesServiceAccounts = latest(sum.KubernetesSecrets), latest(sum.KubernetesServiceAccounts)
	return sum, changed
}

// latest cuts off the first ones of a list that is too long.
func latest[T any](list []T) []T { return list[max(0, len(list)-maxKnown):] }

// Normal returns the name by which a runtime lists an image: with its registry,
// with the tag latest where it has neither tag nor digest, and without its tag
// where it has both.
func Normal(image string) string {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return image
	}
	return named.String()
}
