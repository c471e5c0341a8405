package node

import (
	"fmt"
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

// validatePulls returns what is wrong with the fields of pulls and of back-off.
func (k *KubeletSettings) validatePulls() (errs []error) {
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("kubelet."+format, args...)) }
	if k.RegistryPullQPS != nil && *k.RegistryPullQPS < 0 {
		wrong("registryPullQPS %d must not be negative", *k.RegistryPullQPS)
	}
	if k.RegistryBurst < 0 {
		wrong("registryBurst %d must not be negative", k.RegistryBurst)
	}
	if n := k.MaxParallelImagePulls; n != nil {
		switch {
		case *n < 1:
			wrong("maxParallelImagePulls %d is too few: at least 1", *n)
		case *n > 1 && k.SerializeImagePulls != nil && *k.SerializeImagePulls:
			wrong("maxParallelImagePulls %d is more than serializeImagePulls leaves: write serializeImagePulls: false", *n)
		}
	}
	if err := k.imagePulls().Verify.Check(); err != nil {
		wrong("%w", err)
	}
	if p := k.CrashLoopBackOff.MaxContainerRestartPeriod; p != nil && (p.Duration < time.Second || p.Duration > 5*time.Minute) {
		wrong("crashLoopBackOff.maxContainerRestartPeriod %v must be 1s to 300s", p.Duration)
	}
	return errs
}
