package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/answer"
	"github.com/holdfast-dev/holdfast/internal/kubelet/certstore"
)

// patience is how long a request may wait before somebody is told: where requests
// are approved by a controller, they are at once.
const patience = 10 * time.Second

// errGone is returned when a request was deleted before it was answered. The API
// removes those that nobody answered for a day.
var errGone = errors.New("the CertificateSigningRequest was deleted before it was answered")

// errUsed is returned for a request that cannot be gone on with.
var errUsed = errors.New("the CertificateSigningRequest of this key is of no use any more")

// A refusal is somebody's word that there will be no certificate.
type refusal struct {
	request         string // name
	kind            certificatesv1.RequestConditionType
	reason, message string
}

func (r *refusal) Error() string {
	verb := "was denied"
	if r.kind == certificatesv1.CertificateFailed {
		verb = "failed"
	}
	return fmt.Sprintf("CertificateSigningRequest %s %s (reason %q, message %q): see kubectl describe certificatesigningrequest %[1]s", r.request, verb, r.reason, r.message)
}

// obtain asks for a certificate and puts it to use. It waits for as long as the
// answer takes.
func (k *keeper) obtain(ctx context.Context) error {
	template := k.template()
	if template == nil {
		return fmt.Errorf("the %s cannot be asked for before the node has an address", k.what)
	}
	key, err := k.store.Key()
	if err != nil {
		return err
	}
	good := k.good()
	client, err := k.client(good)
	if err != nil {
		return err
	}
	issued, err := k.ask(ctx, client, template, key)
	if err != nil {
		if r := (*refusal)(nil); errors.As(err, &r) || errors.Is(err, errUsed) {
			return errors.Join(err, k.store.DropKey()) // the same request would have the same answer
		}
		return k.failed(good, err)
	}
	pair, err := k.store.Put(issued, key.PEM)
	if pair.Certificate == nil {
		return errors.Join(err, k.store.DropKey())
	}
	if err != nil {
		k.log.Warn("old certificates stay", "err", err)
	}
	k.use(pair.Certificate, pair.Since)
	k.log.Info("certificate issued", "file", k.store.CurrentFile(), "expires", pair.Leaf.NotAfter)
	return nil
}

// ask makes the request, or finds the one that was made before the agent died, and
// returns the certificate in PEM.
func (k *keeper) ask(ctx context.Context, client certificatesclient.CertificateSigningRequestInterface, template *x509.CertificateRequest, key certstore.Key) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key.Signer)
	if err != nil {
		return nil, fmt.Errorf("make a certificate request: %w", err)
	}
	name, err := requestName(k.signer, der)
	if err != nil {
		return nil, err
	}
	_, err = client.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: k.signer,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, k.usage},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var there *certificatesv1.CertificateSigningRequest
		if there, err = client.Get(ctx, name, metav1.GetOptions{}); err == nil {
			err = same(there, der)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create CertificateSigningRequest %s: %w", name, err)
	}
	issued, err := k.await(ctx, client, name)
	if err != nil {
		return nil, err
	}
	if leaf, err := parseLeaf(issued); err != nil || !time.Now().Before(leaf.NotAfter) {
		return nil, fmt.Errorf("%s has no certificate that is good now: %w", name, errors.Join(errUsed, err))
	}
	return issued, nil
}

// requestName is the same for the same key, subject, names and signer, so that
// asking twice makes one object. (The bytes of a request differ each time: they are
// signed.)
func requestName(signer string, der []byte) (string, error) {
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return "", fmt.Errorf("make a certificate request: %w", err)
	}
	names := slices.Clone(request.DNSNames)
	for _, ip := range request.IPAddresses {
		names = append(names, ip.String())
	}
	slices.Sort(names)
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%s\n%s\n%q\n%x\n", signer, request.Subject, names, request.RawSubjectPublicKeyInfo) // never fails
	return "node-csr-" + hex.EncodeToString(h.Sum(nil))[:32], nil
}

// same holds that a request that was there is ours: of our key.
func same(request *certificatesv1.CertificateSigningRequest, der []byte) error {
	ours, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(request.Spec.Request)
	if block == nil {
		return fmt.Errorf("the one that is there holds no PEM: %w", errUsed)
	}
	theirs, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || !slices.Equal(theirs.RawSubjectPublicKeyInfo, ours.RawSubjectPublicKeyInfo) {
		return fmt.Errorf("the one that is there is of another key: %w", errUsed)
	}
	return nil
}

func parseLeaf(data []byte) (*x509.Certificate, error) {
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			return nil, errors.New("there is no certificate in PEM in it")
		}
		if block.Type == "CERTIFICATE" {
			return x509.ParseCertificate(block.Bytes)
		}
		data = rest
	}
}

// await waits for the answer, however long that takes, and tells what to run if
// nobody gives one.
func (k *keeper) await(ctx context.Context, client certificatesclient.CertificateSigningRequestInterface, name string) ([]byte, error) {
	tell := time.AfterFunc(patience, func() {
		waiting := fmt.Errorf("the %s waits for approval: kubectl certificate approve %s", k.what, name)
		k.mu.Lock()
		news := k.why == nil || k.why.Error() != waiting.Error()
		k.why = waiting
		k.mu.Unlock()
		if news {
			k.log.Warn("a certificate request waits for approval", "object", name, "said", "kubectl certificate approve "+name)
		}
	})
	defer tell.Stop()
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	answered, err := answer.Await(ctx, client, answer.Question[*certificatesv1.CertificateSigningRequest]{
		What: "CertificateSigningRequest " + name, Name: name, Selector: selector, Answered: judge, Deleted: errGone,
	})
	if err != nil {
		return nil, err
	}
	return answered.Status.Certificate, nil
}

// judge reads what was said of a request; nil and nil: nothing yet.
func judge(request *certificatesv1.CertificateSigningRequest) (issued bool, err error) {
	for _, c := range request.Status.Conditions {
		if c.Status == corev1.ConditionFalse || c.Status == corev1.ConditionUnknown {
			continue
		}
		if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
			return false, &refusal{request.Name, c.Type, c.Reason, strings.TrimSpace(c.Message)}
		}
	}
	return len(request.Status.Certificate) > 0, nil
}
