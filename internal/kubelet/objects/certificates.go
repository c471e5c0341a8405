package objects

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// certificates has certificates issued for pods. Neither method may block.
type certificates interface {
	PodCertificate(ctx context.Context, pod *v1.Pod, volume string, source int) (*podvolumes.Certificate, error)
	Release(uid types.UID)
}

// errNoCertificates is returned where nobody has certificates issued.
var errNoCertificates = errors.New("this node has no certificates issued for pods")

// PodCertificate returns the certificate for a source of a pod's projected volume,
// or why there is none yet. It does not wait for one to be issued.
func (s *Store) PodCertificate(ctx context.Context, pod *v1.Pod, volume string, source int) (*podvolumes.Certificate, error) {
	if s.cfg.Certificates == nil {
		return nil, errNoCertificates
	}
	return s.cfg.Certificates.PodCertificate(ctx, pod, volume, source)
}
