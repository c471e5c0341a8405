package podcertificate

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// issued is a certificate with when it is due.
type issued struct {
	podvolumes.Certificate
	refresh time.Time // from then on another one may be asked for
	expires time.Time
}

// A refusal is the signer's word that there will be no certificate.
type refusal struct {
	kind            string // the condition of the request: Denied or Failed
	request         string // namespace/name
	reason, message string
}

func (r *refusal) Error() string {
	verb := "was denied"
	if r.kind == certificatesv1.PodCertificateRequestConditionTypeFailed {
		verb = "failed"
	}
	return fmt.Sprintf("PodCertificateRequest %s %s, reason=%q, message=%q", r.request, verb, r.reason, r.message)
}

// errDeleted is returned when somebody deleted a request before it was answered.
var errDeleted = errors.New("the PodCertificateRequest was deleted before it was answered")

// issue makes a key, asks for a certificate and waits for the answer.
func (m *Manager) issue(ctx context.Context, p *projection) (issued, error) {
	key, err := makeKey(p.source.KeyType)
	if err != nil {
		return issued{}, err
	}
	asked, err := m.ask(ctx, p, key)
	if err != nil {
		return issued{}, err
	}
	answer, err := m.await(ctx, asked)
	if err != nil {
		return issued{}, err
	}
	chain := podvolumes.Certificates(answer.Status.CertificateChain)
	if len(chain) == 0 || answer.Status.BeginRefreshAt == nil || answer.Status.NotAfter == nil {
		return issued{}, fmt.Errorf("the signer's answer in PodCertificateRequest %s/%s lacks a certificate, beginRefreshAt or notAfter", asked.Namespace, asked.Name)
	}
	return issued{podvolumes.Certificate{Key: key.pem, Chain: chain}, answer.Status.BeginRefreshAt.Time, answer.Status.NotAfter.Time}, nil
}

// ask makes the request.
func (m *Manager) ask(ctx context.Context, p *projection, k privateKey) (*certificatesv1.PodCertificateRequest, error) {
	pod := p.owner
	node, err := m.cfg.NodeUID(ctx)
	if err != nil {
		return nil, err
	}
	name := cmp.Or(pod.Spec.ServiceAccountName, "default")
	account, err := m.cfg.Accounts.ServiceAccounts(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get the pod's service account: %w", err)
	}
	request := &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: "req-" + strings.ToLower(rand.Text()),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: p.source.SignerName, PodName: pod.Name, PodUID: pod.UID,
			ServiceAccountName: name, ServiceAccountUID: account.UID,
			NodeName: types.NodeName(m.cfg.Node), NodeUID: node,
			MaxExpirationSeconds: p.source.MaxExpirationSeconds, StubPKCS10Request: k.proof,
			UnverifiedUserAnnotations: p.source.UserAnnotations,
		},
	}
	made, err := m.cfg.Client.PodCertificateRequests(pod.Namespace).Create(ctx, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create a PodCertificateRequest: %w", err)
	}
	return made, nil
}

// await waits for the signer's answer, however long that takes.
func (m *Manager) await(ctx context.Context, asked *certificatesv1.PodCertificateRequest) (*certificatesv1.PodCertificateRequest, error) {
	client := m.cfg.Client.PodCertificateRequests(asked.Namespace)
	// A node of a cluster may read only those that are its own.
	selector := fields.Set{"spec.nodeName": m.cfg.Node, metav1.ObjectNameField: asked.Name}.String()
	for {
		list, err := client.List(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil {
			return nil, fmt.Errorf("read PodCertificateRequest %s/%s: %w", asked.Namespace, asked.Name, err)
		}
		var found *certificatesv1.PodCertificateRequest
		for i := range list.Items {
			if list.Items[i].Name == asked.Name {
				found = &list.Items[i]
			}
		}
		if found == nil {
			return nil, errDeleted
		}
		if done, err := judge(found); done || err != nil {
			return found, err
		}
		w, err := client.Watch(ctx, metav1.ListOptions{FieldSelector: selector, ResourceVersion: list.ResourceVersion})
		if err != nil {
			return nil, fmt.Errorf("watch PodCertificateRequest %s/%s: %w", asked.Namespace, asked.Name, err)
		}
		answer, err := follow(ctx, w, asked.Name)
		w.Stop()
		if answer != nil || err != nil {
			return answer, err
		}
	}
}

// follow returns the answer that a watch brings, or nil if the watch ends before.
func follow(ctx context.Context, w watch.Interface, name string) (*certificatesv1.PodCertificateRequest, error) {
	for {
		var event watch.Event
		var open bool
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case event, open = <-w.ResultChan():
		}
		if !open {
			return nil, nil
		}
		if event.Type == watch.Error {
			if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				return nil, fmt.Errorf("watch PodCertificateRequest %s: %w", name, err)
			}
			return nil, nil // from the list on again
		}
		request, ok := event.Object.(*certificatesv1.PodCertificateRequest)
		if !ok || request.Name != name {
			continue
		}
		if event.Type == watch.Deleted {
			return nil, errDeleted
		}
		if done, err := judge(request); done || err != nil {
			return request, err
		}
	}
}

// judge reads what the signer says of a request.
func judge(request *certificatesv1.PodCertificateRequest) (issued bool, err error) {
	for _, c := range request.Status.Conditions {
		if c.Status != metav1.ConditionTrue {
			continue
		}
		switch c.Type {
		case certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed:
			return false, &refusal{c.Type, request.Namespace + "/" + request.Name, c.Reason, c.Message}
		case certificatesv1.PodCertificateRequestConditionTypeIssued:
			return true, nil
		}
	}
	return false, nil
}
