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

	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpointfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// tokens keeps service account tokens until they are due for renewal.
type tokens struct {
	client   kubernetes.Interface
	log      *slog.Logger
	memory   memory        // nil: there is none
	patience time.Duration // with the API server, where memory could serve
	mu       *tokensMu
}

type tokensMu struct {
	sync.Mutex
	kept map[checkpointfile.Key]*authenticationv1.TokenRequest
}

// clockSlack is what the API forgives of a token that is not valid yet.
const clockSlack = time.Minute

func newTokens(cfg Config) tokens {
	return tokens{cfg.Client, cfg.Log, cfg.Memory, cfg.Patience, &tokensMu{kept: map[checkpointfile.Key]*authenticationv1.TokenRequest{}}}
}

// get returns a token. Tokens of static pods are bound to the node and shared by
// the pods of one account.
func (t tokens) get(ctx context.Context, namespace, account string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	key := checkpointfile.TokenKey(namespace, account, request)
	t.mu.Lock()
	kept := t.mu.kept[key]
	t.mu.Unlock()
	now := time.Now()
	// One that is not valid yet is from before the clock was set back.
	if kept != nil && now.Before(podvolumes.RefreshAt(kept)) && now.Add(clockSlack).After(podvolumes.IssuedAt(kept)) {
		return kept, nil
	}
	fresh, err := t.ask(ctx, namespace, account, request)
	switch {
	case err == nil:
	case kept != nil && now.Before(kept.Status.ExpirationTimestamp.Time) && !apierrors.IsNotFound(err):
		t.log.Warn("token cannot be renewed; using the old one", "namespace", namespace, "serviceAccount", account, "expires", kept.Status.ExpirationTimestamp.Time, "err", err)
		return kept, nil
	case apierrors.IsNotFound(err):
		return nil, err
	default:
		return t.remembered(namespace, account, request, fmt.Errorf("request a token: %w", err))
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

// ask asks the API server, not for long where memory could serve.
func (t tokens) ask(ctx context.Context, namespace, account string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	if t.memory != nil {
		if _, err := t.memory.Token(namespace, account, request); err == nil {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, t.patience)
			defer cancel()
		}
	}
	return t.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
}

// remembered returns the token that an earlier run kept, in place of an error of
// the API server.
func (t tokens) remembered(namespace, account string, request *authenticationv1.TokenRequest, err error) (*authenticationv1.TokenRequest, error) {
	if t.memory == nil || !silent(err) {
		return nil, err
	}
	token, kept := t.memory.Token(namespace, account, request)
	if kept != nil {
		return nil, both(err, kept)
	}
	return token, nil
}

// forget drops the tokens that are bound to a pod.
func (t tokens) forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.mu.kept {
		if key.Owner() == string(uid) {
			delete(t.mu.kept, key)
		}
	}
}
