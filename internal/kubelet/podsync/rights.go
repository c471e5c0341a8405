package podsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/imagerights"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

// records keep on the disk which images this node pulled, and with whose
// credentials. Images are called as pods call them, with their tag; name is that
// without it, and id the runtime's own reference.
type records interface {
	// Begin notes that a pull begins; End that it has ended. known: if the image is
	// there now, its record says so, too; else the note stays.
	Begin(image string) error
	End(image string, known bool) error
	// Look returns the record of an image, nil if there is none, and whether this
	// node pulled it or is doing so, under that name or the runtime's names of it.
	Look(image, id string, names []string) (record *kubeletconfig.ImagePulledRecord, pulled bool, err error)
	// Add notes who may use an image that this node pulled.
	Add(id, name string, by kubeletconfig.ImagePullCredentials) error
}

// noRecords is a node that remembers no pulls.
type noRecords struct{}

func (noRecords) Begin(string) error     { return nil }
func (noRecords) End(string, bool) error { return nil }
func (noRecords) Look(string, string, []string) (*kubeletconfig.ImagePulledRecord, bool, error) {
	return nil, false, nil
}
func (noRecords) Add(string, string, kubeletconfig.ImagePullCredentials) error { return nil }

// rights says which pod may use an image that is there without a pull.
type rights struct {
	policy  imagerights.Policy
	records records
	checks  *prometheus.CounterVec
	log     *slog.Logger
}

// may reports whether the pod of q may use an image as it is.
func (r rights) may(q *request, image *runtimeapi.Image) bool {
	may, result := r.judge(q, image)
	r.checks.WithLabelValues(result).Inc()
	return may
}

// judge returns upstream's word for the result, too.
func (r rights) judge(q *request, image *runtimeapi.Image) (may bool, result string) {
	if podfiles.IsLocal(q.ref) {
		return true, "credentialPolicyAllowed" // there is no registry that could say no
	}
	record, pulled, err := r.records.Look(q.c.Image, image.GetId(), slices.Concat(image.GetRepoTags(), image.GetRepoDigests()))
	if err != nil {
		r.log.Warn("record of a pull cannot be read; the image is pulled again", "image", q.c.Image, "err", err)
		return false, "error"
	}
	name, err := imagerights.Name(q.c.Image)
	if err != nil {
		return false, "error" // the runtime would not have found it
	}
	// What is pinned was put there, or is kept there, for all pods.
	if !r.policy.Verify(name, pulled && !image.GetPinned()) {
		return true, "credentialPolicyAllowed"
	}
	may, learned := imagerights.Judge(record, name, q.credentials)
	if learned != nil {
		err := r.records.Add(image.GetId(), name, kubeletconfig.ImagePullCredentials{KubernetesSecrets: []kubeletconfig.ImagePullSecret{*learned}})
		if err != nil {
			r.log.Warn("record of a pull cannot be kept", "image", q.c.Image, "err", err)
		}
	}
	if !may {
		return false, "mustAuthenticate"
	}
	return true, "credentialRecordFound"
}

// begin notes on the disk that a pull begins: one that nobody knows the end of
// would leave an image that seems to have been put there.
func (r rights) begin(q *request) error {
	if err := r.records.Begin(q.c.Image); err != nil {
		return fmt.Errorf("note that a pull begins: %w", err)
	}
	return nil
}

// failed notes that a pull failed. Where the runtime did not say so itself, it
// may have the image all the same, and the note of begin stays.
func (r rights) failed(q *request, err error) {
	unsure := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, observed.ErrUnavailable)
	r.end(q, !unsure)
}

func (r rights) end(q *request, known bool) {
	if err := r.records.End(q.c.Image, known); err != nil {
		r.log.Warn("note of a pull stays for now", "image", q.c.Image, "err", err)
	}
}

// pulled notes what an image was pulled with. If that fails, the note of begin
// stays, and says that the image was pulled.
func (r rights) pulled(q *request, id string, with *podfiles.Credential) {
	name, err := imagerights.Name(q.c.Image)
	if err == nil {
		err = r.records.Add(id, name, imagerights.By(with))
	}
	if err != nil {
		r.log.Warn("record of a pull cannot be kept", "image", q.c.Image, "err", err)
	}
	r.end(q, err == nil)
}
