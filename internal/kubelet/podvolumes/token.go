package podvolumes

import (
	"cmp"
	"context"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
)

const (
	defaultTokenSeconds = 3600
	maxTokenAge         = 24 * time.Hour // upstream's: no token is kept longer, however long it lives
	configSource        = "kubernetes.io/config.source"
)

// token adds the file of a service account token.
func (r resolver) token(ctx context.Context, c *content, source *v1.ServiceAccountTokenProjection) error {
	account := serviceAccount(r.pod)
	answer, err := r.objects.Token(ctx, r.pod.Namespace, account, TokenRequest(r.pod, source))
	if err != nil {
		return r.waiting(RefServiceAccount, account, err)
	}
	r.putPrivately(c, source.Path, []byte(answer.Status.Token), source.User)
	return nil
}

// serviceAccount returns the name of the service account of a pod.
func serviceAccount(pod *v1.Pod) string { return cmp.Or(pod.Spec.ServiceAccountName, "default") }

// TokenRequest asks for the token of one projection. It is bound to the pod, so
// that it ends with it. A static pod exists in the API only as a mirror with
// another UID, which may come and go: its token is bound to the node instead.
func TokenRequest(pod *v1.Pod, source *v1.ServiceAccountTokenProjection) *authenticationv1.TokenRequest {
	seconds := int64(defaultTokenSeconds)
	if source.ExpirationSeconds != nil {
		seconds = *source.ExpirationSeconds
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if from := pod.Annotations[configSource]; from != "" && from != "api" {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: pod.Spec.NodeName}
	}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	return request
}

// RefreshAt returns when to ask for a new token in place of this one: at four
// fifths of its life, or after a day, as the upstream kubelet does.
func RefreshAt(token *authenticationv1.TokenRequest) time.Time {
	return IssuedAt(token).Add(min(life(token)*4/5, maxTokenAge))
}

// IssuedAt returns when the token was made, by the clock of who made it.
func IssuedAt(token *authenticationv1.TokenRequest) time.Time {
	return token.Status.ExpirationTimestamp.Add(-life(token))
}

func life(token *authenticationv1.TokenRequest) time.Duration {
	if token.Spec.ExpirationSeconds != nil {
		return time.Duration(*token.Spec.ExpirationSeconds) * time.Second
	}
	return defaultTokenSeconds * time.Second
}
