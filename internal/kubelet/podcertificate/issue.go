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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/answer"
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
	return answer.Await(ctx, client, answer.Question[*certificatesv1.PodCertificateRequest]{
		What: "PodCertificateRequest " + asked.Namespace + "/" + asked.Name, Name: asked.Name, Selector: selector, Answered: judge, Deleted: errDeleted,
	})
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
