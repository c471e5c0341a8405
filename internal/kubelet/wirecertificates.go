package kubelet

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podcertificate"
)

// wireCertificates makes what has certificates issued for pods.
func (k *Kubelet) wireCertificates() {
	k.certificates = podcertificate.New(podcertificate.Config{
		Client: k.cfg.Client.CertificatesV1(), Accounts: k.cfg.Client.CoreV1(), Node: k.cfg.NodeName, NodeUID: k.nodeUID,
		Recorder: k.events, Log: k.cfg.Log.With("part", "podcertificate"),
	})
	k.certificates.Subscribe(func(uid types.UID) { k.volumes.Poke(uid) })
}
