package kubelet

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/eviction"
	"github.com/holdfast-dev/holdfast/internal/kubelet/imagegc"
	"github.com/holdfast-dev/holdfast/internal/kubelet/imagerights"
	"github.com/holdfast-dev/holdfast/internal/kubelet/logrotate"
	"github.com/holdfast-dev/holdfast/internal/kubelet/nodeshutdown"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podsync"
	"github.com/holdfast-dev/holdfast/internal/kubelet/server"
	"github.com/holdfast-dev/holdfast/internal/kubelet/tlsoptions"
)

// Configure sets what upstream's configuration says of the agent. The configuration
// must be complete, with upstream's defaults, and valid; the caller leaves it alone
// from then on. What it says of sources of static pods, of sockets and of the
// client of the API is not the agent's.
func (c *Config) Configure(k *kubeletconfig.KubeletConfiguration) error {
	c.Configuration = k
	c.RuntimeEndpoint, c.ImageEndpoint = k.ContainerRuntimeEndpoint, k.ImageServiceEndpoint
	c.RuntimeTimeout = k.RuntimeRequestTimeout.Duration
	c.SingleProcessOOMKill = k.SingleProcessOOMKill
	c.LogDir, c.CgroupParent = k.PodLogsDir, k.CgroupRoot
	c.ManifestURL = k.StaticPodURL != ""
	c.ClusterDNS, c.ClusterDomain, c.ResolvConf = k.ClusterDNS, k.ClusterDomain, k.ResolverConfig
	c.ChangeDetection = k.ConfigMapAndSecretChangeDetectionStrategy
	c.API = server.PolicyOf(k)
	c.LeaseDuration = time.Duration(k.NodeLeaseDurationSeconds) * time.Second

	c.ImageGC = imagegc.Policy{
		HighThresholdPercent: int(*k.ImageGCHighThresholdPercent), LowThresholdPercent: int(*k.ImageGCLowThresholdPercent),
		MinAge: k.ImageMinimumGCAge.Duration, MaxAge: k.ImageMaximumGCAge.Duration,
	}
	c.ImagePulls = imagePulls(k)
	c.MaxRestartPeriod = k.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
	c.VolumeStatsPeriod = k.VolumeStatsAggPeriod.Duration
	c.PodPidsLimit = *k.PodPidsLimit
	c.NoCPUQuota, c.CPUPeriod = !*k.CPUCFSQuota, k.CPUCFSQuotaPeriod.Duration
	c.SeccompDefault, c.UnsafeSysctls = *k.SeccompDefault, k.AllowedUnsafeSysctls
	if k.UserNamespaces != nil && k.UserNamespaces.IDsPerPod != nil {
		c.UserIDsPerPod = uint32(*k.UserNamespaces.IDsPerPod) //nolint:gosec // valid
	}
	c.Shutdown = shutdownPeriods(k)

	logs, errLogs := logRotation(k)
	evictions, errEvictions := eviction.Parse(eviction.Settings{
		Hard: k.EvictionHard, Soft: k.EvictionSoft, SoftGracePeriod: k.EvictionSoftGracePeriod, MinimumReclaim: k.EvictionMinimumReclaim,
		TransitionPeriod: k.EvictionPressureTransitionPeriod.Duration, MaxPodGracePeriod: int64(k.EvictionMaxPodGracePeriod),
		PodsUnbounded: !slices.Contains(k.EnforceNodeAllocatable, "pods"),
	})
	c.LogRotation, c.Eviction = logs, evictions
	agreed, _, errTLS := tlsoptions.Parse(tlsoptions.Of(k))
	c.TLS = agreed
	return errors.Join(errLogs, errEvictions, errTLS)
}

// imagePulls is how images are pulled.
func imagePulls(k *kubeletconfig.KubeletConfiguration) podsync.Pulls {
	p := podsync.Pulls{
		QPS: int(*k.RegistryPullQPS), Burst: int(k.RegistryBurst), MaxParallel: 1,
		Verify: imagerights.Policy{Kind: k.ImagePullCredentialsVerificationPolicy, Allowlist: k.PreloadedImagesVerificationAllowlist},
	}
	if p.QPS == 0 {
		p.QPS = -1
	}
	switch {
	case k.MaxParallelImagePulls != nil:
		p.MaxParallel = int(*k.MaxParallelImagePulls)
	case !*k.SerializeImagePulls:
		p.MaxParallel = -1
	}
	return p
}

// logRotation is how logs are rotated.
func logRotation(k *kubeletconfig.KubeletConfiguration) (logrotate.Policy, error) {
	p := logrotate.Policy{MaxFiles: int(*k.ContainerLogMaxFiles), Workers: int(*k.ContainerLogMaxWorkers), Interval: k.ContainerLogMonitorInterval.Duration}
	size, err := resource.ParseQuantity(k.ContainerLogMaxSize)
	if err != nil {
		return p, fmt.Errorf("containerLogMaxSize %q is no quantity of bytes, such as 10Mi: %w", k.ContainerLogMaxSize, err)
	}
	p.MaxSize = size.Value()
	return p, nil
}

// shutdownPeriods is how long pods get when the machine goes down, by priority;
// none: they are not ended in order.
func shutdownPeriods(k *kubeletconfig.KubeletConfiguration) []nodeshutdown.Period {
	if len(k.ShutdownGracePeriodByPodPriority) == 0 {
		return nodeshutdown.Periods(k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration)
	}
	var periods []nodeshutdown.Period
	for _, p := range k.ShutdownGracePeriodByPodPriority {
		periods = append(periods, nodeshutdown.Period{Priority: p.Priority, Grace: time.Duration(p.ShutdownGracePeriodSeconds) * time.Second})
	}
	return periods
}
