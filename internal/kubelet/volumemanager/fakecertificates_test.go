package volumemanager

import (
	"context"
	"errors"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

func (a *api) TrustBundles(context.Context) (*certificatesv1.ClusterTrustBundleList, error) {
	return nil, errors.New("no trust bundles here")
}

func (a *api) PodCertificate(context.Context, *v1.Pod, string, int) (*podvolumes.Certificate, error) {
	return nil, errors.New("no certificates here")
}
