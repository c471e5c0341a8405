package objects

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// tokens keeps service account tokens until they are due for renewal.
type tokens struct {
	client kubernetes.Interface
	log    *slog.Logger
	mu     *tokensMu
}

type tokensMu struct {
	sync.Mutex
	kept map[tokenKey]*authenticationv1.TokenRequest
}

// clockSlack is what the API forgives of a token that is not valid yet.
const clockSlack = time.Minute

// tokenKey tells requests apart. Tokens of static pods are bound to the node
// and shared by the pods of one account.
type tokenKey struct {
	namespace, account, audience string
	seconds                      int64
	boundTo                      authenticationv1.BoundObjectReference
}

func newTokens(client kubernetes.Interface, log *slog.Logger) tokens {
	return tokens{client, log, &tokensMu{kept: map[tokenKey]*authenticationv1.TokenRequest{}}}
}

func keyOf(namespace, account string, request *authenticationv1.TokenRequest) tokenKey {
	key := tokenKey{namespace: namespace, account: account, audience: fmt.Sprint(request.Spec.Audiences)}
	if request.Spec.ExpirationSeconds != nil {
		key.seconds = *request.Spec.ExpirationSeconds
	}
	if request.Spec.BoundObjectRef != nil {
		key.boundTo = *request.Spec.BoundObjectRef
	}
	return key
}

func (t tokens) get(ctx context.Context, namespace, account string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	key := keyOf(namespace, account, request)
	t.mu.Lock()
	kept := t.mu.kept[key]
	t.mu.Unlock()
	now := time.Now()
	// One that is not valid yet is from before the clock was set back.
	if kept != nil && now.Before(podvolumes.RefreshAt(kept)) && now.Add(clockSlack).After(podvolumes.IssuedAt(kept)) {
		return kept, nil
	}
	fresh, err := t.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	switch {
	case err == nil:
	case kept != nil && now.Before(kept.Status.ExpirationTimestamp.Time) && !apierrors.IsNotFound(err):
		t.log.Warn("token cannot be renewed; using the old one", "namespace", namespace, "serviceAccount", account, "expires", kept.Status.ExpirationTimestamp.Time, "err", err)
		return kept, nil
	case apierrors.IsNotFound(err):
		return nil, err
	default:
		return nil, fmt.Errorf("request a token: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, old := range t.mu.kept { // those of pods that nobody released, and of static ones
		if now.After(old.Status.ExpirationTimestamp.Time) {
			delete(t.mu.kept, key)
		}
	}
	t.mu.kept[key] = fresh
	return fresh, nil
}

// forget drops the tokens that are bound to a pod.
func (t tokens) forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.mu.kept {
		if key.boundTo.UID == uid {
			delete(t.mu.kept, key)
		}
	}
}
