package node

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/kubelet/imagerights"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podsync"
)

// imagePulls returns how images are pulled.
func (k *KubeletSettings) imagePulls() podsync.Pulls {
	p := podsync.Pulls{
		Burst:  int(k.RegistryBurst),
		Verify: imagerights.Policy{Kind: k.ImagePullCredentialsVerificationPolicy, Allowlist: k.PreloadedImagesVerificationAllowlist},
	}
	set(&p.QPS, k.RegistryPullQPS)
	if k.RegistryPullQPS != nil && *k.RegistryPullQPS == 0 {
		p.QPS = -1
	}
	set(&p.MaxParallel, k.MaxParallelImagePulls)
	if k.SerializeImagePulls != nil && !*k.SerializeImagePulls && k.MaxParallelImagePulls == nil {
		p.MaxParallel = -1
	}
	return p
}

// maxRestartPeriod returns 0 for the default.
func (k *KubeletSettings) maxRestartPeriod() time.Duration {
	if p := k.CrashLoopBackOff.MaxContainerRestartPeriod; p != nil {
		return p.Duration
	}
	return 0
}
