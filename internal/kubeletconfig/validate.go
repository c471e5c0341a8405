package kubeletconfig

import (
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/imagerights"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podadmit"
	"github.com/holdfast-dev/holdfast/internal/kubelet/tlsoptions"
)

// A Wrong is one thing that is wrong with a field.
type Wrong struct {
	Field   string // `authentication.x509.clientCAFile`
	Message string // what is wrong, and what to do; it follows the name of the field
}

// Validate returns what upstream's kubelet would not start with, and values that
// would mean nothing. k has its defaults. What is said of evictions is
// read by those who act by it.
func Validate(k *v1beta1.KubeletConfiguration) []Wrong {
	var all []Wrong
	validate(k, func(field, format string, args ...any) {
		all = append(all, Wrong{field, fmt.Sprintf(format, args...)})
	})
	return all
}

// validate is Validate that complains.
func validate(k *v1beta1.KubeletConfiguration, wrong complaint) {
	validateNumbers(k, wrong)
	validateChoices(k, wrong)
	validateTimes(k, wrong)
	validateAddresses(k, wrong)
	validatePaths(k, wrong)
	validateImages(k, wrong)
	validateShutdown(k, wrong)
	validateTaints(k.RegisterWithTaints, wrong)
	validateReserved(k, wrong)
}

func validateNumbers(k *v1beta1.KubeletConfiguration, wrong complaint) {
	const most, port = math.MaxInt64, 65535
	for _, n := range []struct {
		field            string
		value, low, high int64
	}{
		{"port", int64(k.Port), 1, port},
		{"readOnlyPort", int64(k.ReadOnlyPort), 0, port},
		{"healthzPort", int64(*k.HealthzPort), 0, port},
		{"registryPullQPS", int64(*k.RegistryPullQPS), 0, most},
		{"registryBurst", int64(k.RegistryBurst), 0, most},
		{"eventRecordQPS", int64(*k.EventRecordQPS), 0, most},
		{"eventBurst", int64(k.EventBurst), 0, most},
		{"kubeAPIQPS", int64(*k.KubeAPIQPS), 0, most},
		{"kubeAPIBurst", int64(k.KubeAPIBurst), 0, most},
		{"nodeLeaseDurationSeconds", int64(k.NodeLeaseDurationSeconds), 1, most},
		{"nodeStatusMaxImages", int64(*k.NodeStatusMaxImages), -1, most},
		{"maxPods", int64(k.MaxPods), 0, most},
		{"maxOpenFiles", k.MaxOpenFiles, 0, most},
		{"oomScoreAdj", int64(*k.OOMScoreAdj), -1000, 1000},
		{"podsPerCore", int64(k.PodsPerCore), 0, most},
		{"podPidsLimit", *k.PodPidsLimit, -1, most},
		{"imageGCHighThresholdPercent", int64(*k.ImageGCHighThresholdPercent), 0, 100},
		{"imageGCLowThresholdPercent", int64(*k.ImageGCLowThresholdPercent), 0, 100},
		{"containerLogMaxFiles", int64(*k.ContainerLogMaxFiles), 2, most},
		{"containerLogMaxWorkers", int64(*k.ContainerLogMaxWorkers), 1, most},
	} {
		switch {
		case n.value >= n.low && n.value <= n.high:
		case n.high == most:
			wrong(n.field, "%d is too few: at least %d", n.value, n.low)
		default:
			wrong(n.field, "%d must be from %d to %d", n.value, n.low, n.high)
		}
	}
	if k.UserNamespaces != nil && k.UserNamespaces.IDsPerPod != nil {
		if n := *k.UserNamespaces.IDsPerPod; n < 65536 || n%65536 != 0 || n > math.MaxUint32 {
			wrong("userNamespaces.idsPerPod", "%d must be a multiple of 65536, and less than 1<<32", n)
		}
	}
}

func validateChoices(k *v1beta1.KubeletConfiguration, wrong complaint) {
	for _, c := range []struct {
		field, value string
		choices      []string
	}{
		{"authorization.mode", string(k.Authorization.Mode), []string{"AlwaysAllow", "Webhook"}},
		{"cgroupDriver", k.CgroupDriver, []string{"cgroupfs", "systemd"}},
		{"logging.format", k.Logging.Format, []string{"json", "text"}},
		{"configMapAndSecretChangeDetectionStrategy", string(k.ConfigMapAndSecretChangeDetectionStrategy), []string{"Get", "Cache", "Watch"}},
	} {
		if !slices.Contains(c.choices, c.value) {
			wrong(c.field, "%q is not known: %s", c.value, strings.Join(c.choices, ", "))
		}
	}
	if k.ContainerRuntimeEndpoint == "" {
		wrong("containerRuntimeEndpoint", "is empty: name the runtime's socket, such as unix:///run/containerd/containerd.sock")
	}
	if size, err := resource.ParseQuantity(k.ContainerLogMaxSize); err != nil {
		wrong("containerLogMaxSize", "%q is no quantity of bytes, such as 10Mi", k.ContainerLogMaxSize)
	} else if size.IsZero() {
		wrong("containerLogMaxSize", "0 would rotate logs all the time: a size such as 10Mi, or a negative one for never")
	}
}

func validateTimes(k *v1beta1.KubeletConfiguration, wrong complaint) {
	for _, d := range []struct {
		field            string
		value, low, high time.Duration // high 0: no bound
	}{
		{"fileCheckFrequency", k.FileCheckFrequency.Duration, time.Second, 0},
		{"httpCheckFrequency", k.HTTPCheckFrequency.Duration, time.Second, 0},
		{"runtimeRequestTimeout", k.RuntimeRequestTimeout.Duration, time.Second, 0},
		{"nodeStatusUpdateFrequency", k.NodeStatusUpdateFrequency.Duration, time.Second, 0},
		{"nodeStatusReportFrequency", k.NodeStatusReportFrequency.Duration, time.Second, 0},
		{"streamingConnectionIdleTimeout", k.StreamingConnectionIdleTimeout.Duration, 0, 0},
		{"authentication.webhook.cacheTTL", k.Authentication.Webhook.CacheTTL.Duration, 0, 0},
		{"authorization.webhook.cacheAuthorizedTTL", k.Authorization.Webhook.CacheAuthorizedTTL.Duration, 0, 0},
		{"authorization.webhook.cacheUnauthorizedTTL", k.Authorization.Webhook.CacheUnauthorizedTTL.Duration, 0, 0},
		{"imageMinimumGCAge", k.ImageMinimumGCAge.Duration, 0, 0},
		{"imageMaximumGCAge", k.ImageMaximumGCAge.Duration, 0, 0},
		{"cpuCFSQuotaPeriod", k.CPUCFSQuotaPeriod.Duration, time.Millisecond, time.Second},
		{"containerLogMonitorInterval", k.ContainerLogMonitorInterval.Duration, 3 * time.Second, 0},
		{"crashLoopBackOff.maxContainerRestartPeriod", k.CrashLoopBackOff.MaxContainerRestartPeriod.Duration, time.Second, 5 * time.Minute},
	} {
		switch {
		case d.value < d.low && d.low == 0:
			wrong(d.field, "%v must not be negative", d.value)
		case d.value < d.low:
			wrong(d.field, "%v is too short: at least %v", d.value, d.low)
		case d.high != 0 && d.value > d.high:
			wrong(d.field, "%v is too long: at most %v", d.value, d.high)
		}
	}
}

func validateAddresses(k *v1beta1.KubeletConfiguration, wrong complaint) {
	address := func(field, value string) {
		if _, err := netip.ParseAddr(value); err != nil {
			wrong(field, "%q is no address, such as 127.0.0.1", value)
		}
	}
	address("address", k.Address)
	address("healthzBindAddress", k.HealthzBindAddress)
	for _, server := range k.ClusterDNS {
		address("clusterDNS", server)
	}
	if k.ClusterDomain != "" {
		for _, why := range validation.IsDNS1123Subdomain(k.ClusterDomain) {
			wrong("clusterDomain", "%q is no name of a domain: %s", k.ClusterDomain, why)
		}
	}
}

func validatePaths(k *v1beta1.KubeletConfiguration, wrong complaint) {
	for field, path := range map[string]string{
		"staticPodPath": k.StaticPodPath, "podLogsDir": k.PodLogsDir, "tlsCertFile": k.TLSCertFile, "tlsPrivateKeyFile": k.TLSPrivateKeyFile,
		"authentication.x509.clientCAFile": k.Authentication.X509.ClientCAFile, "resolvConf": *k.ResolverConfig,
	} {
		if path != "" && (!filepath.IsAbs(path) || filepath.Clean(path) != strings.TrimRight(path, "/")) {
			wrong(field, "%q must be an absolute path without . and ..", path)
		}
	}
	if (k.TLSCertFile == "") != (k.TLSPrivateKeyFile == "") {
		wrong("tlsCertFile", "belongs together with tlsPrivateKeyFile: write both or none")
	}
	if _, _, err := tlsoptions.Parse(tlsoptions.Of(k)); err != nil {
		for line := range strings.Lines(err.Error()) {
			field, why, _ := strings.Cut(strings.TrimSpace(line), " ")
			wrong(strings.TrimSuffix(field, ":"), "%s", why)
		}
	}
}

func validateImages(k *v1beta1.KubeletConfiguration, wrong complaint) {
	if low, high := *k.ImageGCLowThresholdPercent, *k.ImageGCHighThresholdPercent; low >= high {
		wrong("imageGCLowThresholdPercent", "%d must be less than imageGCHighThresholdPercent, which is %d", low, high)
	}
	if least, most := k.ImageMinimumGCAge.Duration, k.ImageMaximumGCAge.Duration; most > 0 && most <= least {
		wrong("imageMaximumGCAge", "%v must be more than imageMinimumGCAge, which is %v", most, least)
	}
	if n := k.MaxParallelImagePulls; n != nil {
		switch {
		case *n < 1:
			wrong("maxParallelImagePulls", "%d is too few: at least 1", *n)
		case *n > 1 && *k.SerializeImagePulls:
			wrong("maxParallelImagePulls", "%d is more than serializeImagePulls leaves: write serializeImagePulls: false", *n)
		}
	}
	rights := imagerights.Policy{Kind: k.ImagePullCredentialsVerificationPolicy, Allowlist: k.PreloadedImagesVerificationAllowlist}
	if err := rights.Check(); err != nil {
		field, why, _ := strings.Cut(err.Error(), " ")
		wrong(field, "%s", why)
	}
	if err := podadmit.CheckSysctls(k.AllowedUnsafeSysctls); err != nil {
		wrong("allowedUnsafeSysctls", "%v", err)
	}
}

func validateShutdown(k *v1beta1.KubeletConfiguration, wrong complaint) {
	total, critical := k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration
	for field, period := range map[string]time.Duration{"shutdownGracePeriod": total, "shutdownGracePeriodCriticalPods": critical} {
		if period != 0 && period < time.Second {
			wrong(field, "%v must be 0, or 1s or more", period)
		}
	}
	if critical > total {
		wrong("shutdownGracePeriodCriticalPods", "%v is a part of shutdownGracePeriod, which is %v: it must not be more", critical, total)
	}
	if len(k.ShutdownGracePeriodByPodPriority) > 0 && (total != 0 || critical != 0) {
		wrong("shutdownGracePeriodByPodPriority", "takes the place of shutdownGracePeriod and shutdownGracePeriodCriticalPods: leave these out, or the other")
	}
	seen := map[int32]bool{}
	for i, p := range k.ShutdownGracePeriodByPodPriority {
		field := fmt.Sprintf("shutdownGracePeriodByPodPriority[%d]", i)
		if p.ShutdownGracePeriodSeconds < 0 {
			wrong(field, "shutdownGracePeriodSeconds %d must not be negative", p.ShutdownGracePeriodSeconds)
		}
		if seen[p.Priority] {
			wrong(field, "priority %d is written twice", p.Priority)
		}
		seen[p.Priority] = true
	}
}

func validateTaints(taints []v1.Taint, wrong complaint) {
	const field = "registerWithTaints"
	type identity struct {
		key    string
		effect v1.TaintEffect
	}
	seen := map[identity]bool{}
	for _, t := range taints {
		for _, why := range validation.IsQualifiedName(t.Key) {
			wrong(field, "key %q: %s", t.Key, why)
		}
		for _, why := range validation.IsValidLabelValue(t.Value) {
			wrong(field, "value %q of %s: %s", t.Value, t.Key, why)
		}
		switch t.Effect {
		case v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute:
		default:
			wrong(field, "effect %q of %s is not known: NoSchedule, PreferNoSchedule, NoExecute", t.Effect, t.Key)
		}
		if t.TimeAdded != nil {
			wrong(field, "timeAdded of %s is the cluster's to write: remove it", t.Key)
		}
		if id := (identity{t.Key, t.Effect}); seen[id] {
			wrong(field, "%s:%s is written twice", t.Key, t.Effect)
		} else {
			seen[id] = true
		}
	}
}

func validateReserved(k *v1beta1.KubeletConfiguration, wrong complaint) {
	for field, amounts := range map[string]map[string]string{"kubeReserved": k.KubeReserved, "systemReserved": k.SystemReserved} {
		for name, amount := range amounts {
			switch name {
			case "cpu", "memory", "ephemeral-storage", "pid":
			default:
				wrong(field, "%q cannot be reserved: cpu, memory, ephemeral-storage and pid can", name)
			}
			if q, err := resource.ParseQuantity(amount); err != nil || q.Sign() < 0 {
				wrong(field, "%q of %s is no quantity, such as 500m or 1Gi", amount, name)
			}
		}
	}
	seen := map[string]bool{}
	for _, part := range k.EnforceNodeAllocatable {
		switch {
		case seen[part]:
			wrong("enforceNodeAllocatable", "%q is written twice", part)
		case part == "none" && len(k.EnforceNodeAllocatable) > 1:
			wrong("enforceNodeAllocatable", `"none" stands alone: leave out the others, or it`)
		case part == "pods", part == "none":
		case slices.Contains([]string{"kube-reserved", "system-reserved", "kube-reserved-compressible", "system-reserved-compressible"}, part):
			wrong("enforceNodeAllocatable", "%q is not possible: limits of the node's own processes are systemd's; write MemoryMax= and CPUQuota= for them", part)
		default:
			wrong("enforceNodeAllocatable", "%q is not known: pods, none", part)
		}
		seen[part] = true
	}
}
