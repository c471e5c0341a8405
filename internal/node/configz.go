package node

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/kubelet/eviction"
	"github.com/holdfast-dev/holdfast/internal/kubelet/imagegc"
	"github.com/holdfast-dev/holdfast/internal/kubelet/logrotate"
)

// inForce returns, in upstream's terms, the configuration that the kubelet of
// this node works by: /configz shows it. What Holdfast does otherwise, or has no
// setting for, is left out.
func inForce(cfg Config, in *instance.Instance, endpoint string, port int) (*kubeletconfig.KubeletConfiguration, error) {
	images, logs := imagegc.DefaultPolicy(), logrotate.DefaultPolicy()
	c := &kubeletconfig.KubeletConfiguration{
		TypeMeta:                 metav1.TypeMeta{APIVersion: kubeletconfig.SchemeGroupVersion.String(), Kind: "KubeletConfiguration"},
		EnableServer:             new(true),
		Address:                  localhost,
		Port:                     int32(port),
		HealthzPort:              new(int32(0)),
		HealthzBindAddress:       localhost,
		EnableDebuggingHandlers:  new(true),
		ContainerRuntimeEndpoint: endpoint,

		StaticPodPath:         cfg.ManifestDir,
		FileCheckFrequency:    metav1.Duration{Duration: 20 * time.Second},
		RuntimeRequestTimeout: metav1.Duration{Duration: 2 * time.Minute},
		StaticPodURL:          cfg.ManifestURL.URL,
		PodLogsDir:            in.Path("logs", "pods"),
		MaxPods:               110,
		RegisterNode:          new(true),

		NodeLeaseDurationSeconds: int32(leaseDuration.Seconds()),

		CgroupDriver:  driverCgroupfs,
		CgroupRoot:    in.CgroupParent(),
		CgroupsPerQOS: new(true),
		CPUCFSQuota:   new(true),
		FailSwapOn:    new(false),

		ImageMinimumGCAge:           metav1.Duration{Duration: images.MinAge},
		ImageGCHighThresholdPercent: new(int32(images.HighThresholdPercent)),
		ImageGCLowThresholdPercent:  new(int32(images.LowThresholdPercent)),

		RegistryPullQPS: new(int32(5)),
		RegistryBurst:   10,

		ImagePullCredentialsVerificationPolicy: kubeletconfig.NeverVerifyPreloadedImages,
		CrashLoopBackOff:                       kubeletconfig.CrashLoopBackOffConfig{MaxContainerRestartPeriod: &metav1.Duration{Duration: 5 * time.Minute}},

		ContainerLogMaxSize:         strconv.FormatInt(logs.MaxSize>>20, 10) + "Mi",
		ContainerLogMaxFiles:        new(int32(logs.MaxFiles)),
		ContainerLogMaxWorkers:      new(int32(logs.Workers)),
		ContainerLogMonitorInterval: &metav1.Duration{Duration: logs.Interval},

		ConfigMapAndSecretChangeDetectionStrategy: kubeletconfig.WatchChangeDetectionStrategy,

		VolumeStatsAggPeriod:             metav1.Duration{Duration: time.Minute},
		EvictionPressureTransitionPeriod: metav1.Duration{Duration: eviction.DefaultTransitionPeriod},
		PodPidsLimit:                     new(int64(-1)),
	}
	c.Authentication.Anonymous.Enabled = new(false)
	c.Authentication.Webhook.Enabled = new(true)
	c.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeWebhook

	// The settings have upstream's names: what is written wins.
	written, err := json.Marshal(cfg.Kubelet)
	if err == nil {
		err = json.Unmarshal(written, c)
	}
	if err != nil {
		return nil, fmt.Errorf("configuration in force: %w", err)
	}
	c.EvictionHard = cfg.Kubelet.settings().HardInForce()
	if c.SerializeImagePulls == nil {
		c.SerializeImagePulls = new(c.MaxParallelImagePulls == nil || *c.MaxParallelImagePulls < 2)
	}
	return c, nil
}
