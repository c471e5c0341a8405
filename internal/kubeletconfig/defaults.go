package kubeletconfig

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubelet/config/v1beta1"
)

// defaultEvictionHard are the amounts of what is available below which upstream's
// kubelet ends pods where nothing is said, on Linux.
var defaultEvictionHard = map[string]string{
	"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%",
}

// hardEvictions returns evictionHard with what counts where it says nothing.
func hardEvictions(k *v1beta1.KubeletConfiguration) map[string]string {
	switch {
	case k.EvictionHard == nil:
		return maps.Clone(defaultEvictionHard)
	case k.MergeDefaultEvictionSettings != nil && *k.MergeDefaultEvictionSettings:
		all := maps.Clone(defaultEvictionHard)
		maps.Copy(all, k.EvictionHard)
		return all
	default:
		return k.EvictionHard
	}
}

// setDefault gives a field its default where it has no value.
func setDefault[T comparable](field *T, value T) {
	var none T
	if *field == none {
		*field = value
	}
}

// setPointer is setDefault for a field in which zero says something.
func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = new(value)
	}
}

func seconds(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Second} }

// SetDefaults sets what upstream's kubelet 1.37 takes for a field that is not
// written, or is written as zero where zero says nothing. The amounts at which pods
// are evicted are not among them.
func SetDefaults(k *v1beta1.KubeletConfiguration) {
	k.APIVersion, k.Kind = v1beta1.SchemeGroupVersion.String(), Kind
	setServingDefaults(k)
	setNodeDefaults(k)
	setPodDefaults(k)
	setResourceDefaults(k)
	logsapi.SetRecommendedLoggingConfiguration(&k.Logging)
}

// Default returns the configuration of a kubelet that is told nothing.
func Default() v1beta1.KubeletConfiguration {
	var k v1beta1.KubeletConfiguration
	SetDefaults(&k)
	k.EvictionHard = hardEvictions(&k)
	return k
}

// setServingDefaults sets those of what the kubelet serves, and of how it asks the
// API.
func setServingDefaults(k *v1beta1.KubeletConfiguration) {
	setPointer(&k.EnableServer, true)
	setDefault(&k.Address, "0.0.0.0")
	setDefault(&k.Port, 10250)
	setPointer(&k.Authentication.Anonymous.Enabled, false)
	setPointer(&k.Authentication.Webhook.Enabled, true)
	setDefault(&k.Authentication.Webhook.CacheTTL, seconds(120))
	setDefault(&k.Authorization.Mode, v1beta1.KubeletAuthorizationModeWebhook)
	setDefault(&k.Authorization.Webhook.CacheAuthorizedTTL, seconds(300))
	setDefault(&k.Authorization.Webhook.CacheUnauthorizedTTL, seconds(30))
	setPointer(&k.EventRecordQPS, 50)
	setDefault(&k.EventBurst, 100)
	setPointer(&k.EnableDebuggingHandlers, true)
	setPointer(&k.HealthzPort, 10248)
	setDefault(&k.HealthzBindAddress, "127.0.0.1")
	setDefault(&k.StreamingConnectionIdleTimeout, seconds(4*3600))
	setDefault(&k.ContentType, "application/vnd.kubernetes.protobuf")
	setPointer(&k.KubeAPIQPS, 50)
	setDefault(&k.KubeAPIBurst, 100)
	setPointer(&k.EnableSystemLogHandler, true)
	setPointer(&k.EnableProfilingHandler, true)
	setPointer(&k.EnableDebugFlagsHandler, true)
}

// setNodeDefaults sets those of the Node and of the process.
func setNodeDefaults(k *v1beta1.KubeletConfiguration) {
	setPointer(&k.OOMScoreAdj, -999)
	setDefault(&k.NodeStatusReportFrequency, k.NodeStatusUpdateFrequency) // upstream: to be as before that field was there
	setDefault(&k.NodeStatusReportFrequency, seconds(300))
	setDefault(&k.NodeStatusUpdateFrequency, seconds(10))
	setDefault(&k.NodeLeaseDurationSeconds, 40)
	setPointer(&k.NodeStatusMaxImages, 50)
	setDefault(&k.MaxOpenFiles, 1_000_000)
	setPointer(&k.EnableControllerAttachDetach, true)
	setPointer(&k.MakeIPTablesUtilChains, true)
	setPointer(&k.IPTablesMasqueradeBit, 14)
	setPointer(&k.IPTablesDropBit, 15)
	setPointer(&k.FailSwapOn, true)
	setPointer(&k.FailCgroupV1, true)
	setPointer(&k.RegisterNode, true)
	setDefault(&k.VolumePluginDir, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")
	setDefault(&k.ContainerRuntimeEndpoint, "unix:///run/containerd/containerd.sock")
	setDefault(&k.HairpinMode, v1beta1.PromiscuousBridge)
}

// setPodDefaults sets those of sources of pods, their images, logs and objects.
func setPodDefaults(k *v1beta1.KubeletConfiguration) {
	setDefault(&k.SyncFrequency, seconds(60))
	setDefault(&k.FileCheckFrequency, seconds(20))
	setDefault(&k.HTTPCheckFrequency, seconds(20))
	setDefault(&k.PodLogsDir, "/var/log/pods")
	setPointer(&k.RegistryPullQPS, 5)
	setDefault(&k.RegistryBurst, 10)
	setPointer(&k.SerializeImagePulls, k.MaxParallelImagePulls == nil || *k.MaxParallelImagePulls < 2)
	setDefault(&k.ImagePullCredentialsVerificationPolicy, v1beta1.NeverVerifyPreloadedImages)
	setDefault(&k.ImageMinimumGCAge, seconds(120))
	setPointer(&k.ImageGCHighThresholdPercent, 85)
	setPointer(&k.ImageGCLowThresholdPercent, 80)
	setDefault(&k.VolumeStatsAggPeriod, seconds(60))
	setDefault(&k.RuntimeRequestTimeout, seconds(120))
	setPointer(&k.ResolverConfig, "/etc/resolv.conf")
	setDefault(&k.ContainerLogMaxSize, "10Mi")
	setPointer(&k.ContainerLogMaxFiles, 5)
	setPointer(&k.ContainerLogMaxWorkers, 1)
	setPointer(&k.ContainerLogMonitorInterval, seconds(10))
	setDefault(&k.ConfigMapAndSecretChangeDetectionStrategy, v1beta1.WatchChangeDetectionStrategy)
	setPointer(&k.SeccompDefault, false)
	setPointer(&k.CrashLoopBackOff.MaxContainerRestartPeriod, seconds(300))
}

// setResourceDefaults sets those of what pods may use.
func setResourceDefaults(k *v1beta1.KubeletConfiguration) {
	setPointer(&k.CgroupsPerQOS, true)
	setDefault(&k.CgroupDriver, "cgroupfs")
	setDefault(&k.CPUManagerPolicy, "none")
	setDefault(&k.CPUManagerReconcilePeriod, seconds(10))
	setDefault(&k.MemoryManagerPolicy, v1beta1.NoneMemoryManagerPolicy)
	setDefault(&k.TopologyManagerPolicy, v1beta1.NoneTopologyManagerPolicy)
	setDefault(&k.TopologyManagerScope, v1beta1.ContainerTopologyManagerScope)
	setDefault(&k.MaxPods, 110)
	if k.PodPidsLimit == nil || *k.PodPidsLimit < 0 {
		k.PodPidsLimit = new(int64(-1))
	}
	setPointer(&k.CPUCFSQuota, true)
	setPointer(&k.CPUCFSQuotaPeriod, metav1.Duration{Duration: 100 * time.Millisecond})
	setDefault(&k.EvictionPressureTransitionPeriod, seconds(300))
	setPointer(&k.MergeDefaultEvictionSettings, false)
	if k.EnforceNodeAllocatable == nil {
		k.EnforceNodeAllocatable = []string{"pods"}
	}
	setDefault(&k.MemoryReservationPolicy, v1beta1.NoneMemoryReservationPolicy)
	setPointer(&k.LocalStorageCapacityIsolation, true)
}
