package kubeletconfig

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/kubelet/config/v1beta1"
)

// A rule says what becomes of one field of the configuration, or of all fields
// below it.
type rule struct {
	field string // `authentication.x509.clientCAFile`
	flag  string // upstream's flag for the field, without dashes; empty: there is none

	// instead is why the field cannot be set, and what to do. Empty: it is honoured.
	instead string
	// also are values, as JSON, that a field which cannot be set may have beside its
	// default.
	also []string
}

// What stands in rules about fields that belong together.
const (
	onlySafe     = "leave it out; "
	noPinning    = onlySafe + "CPUs, memory and NUMA nodes are not given to single containers: keep such pods on nodes that do that"
	noExporter   = onlySafe + "no traces are sent"
	noLogOptions = onlySafe + "every line is written to standard error at once"
	noSwap       = onlySafe + "pods never use swap"
	noMemoryQoS  = onlySafe + "containers get no memory.high or memory.min"
)

// rules has every field of KubeletConfiguration, in the order of that type, but
// apiVersion and kind.
var rules = []rule{
	{field: "enableServer", flag: "enable-server", instead: onlySafe + "the cluster asks the node for logs, commands and figures"},
	{field: "staticPodPath", flag: "pod-manifest-path"},
	{field: "podLogsDir"},
	{field: "syncFrequency", flag: "sync-frequency", instead: onlySafe + "a pod is looked at when something changes, and once a minute"},
	{field: "fileCheckFrequency", flag: "file-check-frequency"},
	{field: "httpCheckFrequency", flag: "http-check-frequency"},
	{field: "staticPodURL", flag: "manifest-url"},
	{field: "staticPodURLHeader", flag: "manifest-url-header"},
	{field: "address", flag: "address"},
	{field: "port", flag: "port"},
	{field: "readOnlyPort", flag: "read-only-port"},
	{field: "tlsCertFile", flag: "tls-cert-file"},
	{field: "tlsPrivateKeyFile", flag: "tls-private-key-file"},
	{field: "tlsCipherSuites", flag: "tls-cipher-suites"},
	{field: "tlsCurvePreferences"},
	{field: "tlsMinVersion", flag: "tls-min-version"},
	{field: "rotateCertificates", flag: "rotate-certificates"},
	{field: "serverTLSBootstrap", flag: "rotate-server-certificates"},
	{field: "authentication.x509.clientCAFile", flag: "client-ca-file"},
	{field: "authentication.webhook.enabled", flag: "authentication-token-webhook"},
	{field: "authentication.webhook.cacheTTL", flag: "authentication-token-webhook-cache-ttl"},
	{field: "authentication.anonymous.enabled", flag: "anonymous-auth"},
	{field: "authorization.mode", flag: "authorization-mode"},
	{field: "authorization.webhook.cacheAuthorizedTTL", flag: "authorization-webhook-cache-authorized-ttl"},
	{field: "authorization.webhook.cacheUnauthorizedTTL", flag: "authorization-webhook-cache-unauthorized-ttl"},
	{field: "registryPullQPS", flag: "registry-qps"},
	{field: "registryBurst", flag: "registry-burst"},
	{field: "imagePullCredentialsVerificationPolicy"},
	{field: "preloadedImagesVerificationAllowlist"},
	{field: "eventRecordQPS", flag: "event-qps"},
	{field: "eventBurst", flag: "event-burst"},
	{field: "enableDebuggingHandlers", flag: "enable-debugging-handlers"},
	{field: "enableContentionProfiling", flag: "contention-profiling"},
	{field: "healthzPort", flag: "healthz-port"},
	{field: "healthzBindAddress", flag: "healthz-bind-address"},
	{field: "oomScoreAdj", flag: "oom-score-adj"},
	{field: "clusterDomain", flag: "cluster-domain"},
	{field: "clusterDNS", flag: "cluster-dns"},
	{field: "streamingConnectionIdleTimeout", flag: "streaming-connection-idle-timeout"},
	{field: "nodeStatusUpdateFrequency", flag: "node-status-update-frequency"},
	{field: "nodeStatusReportFrequency"},
	{field: "nodeLeaseDurationSeconds"},
	{field: "imageMinimumGCAge", flag: "minimum-image-ttl-duration"},
	{field: "imageMaximumGCAge"},
	{field: "imageGCHighThresholdPercent", flag: "image-gc-high-threshold"},
	{field: "imageGCLowThresholdPercent", flag: "image-gc-low-threshold"},
	{field: "volumeStatsAggPeriod", flag: "volume-stats-agg-period"},
	{field: "kubeletCgroups", flag: "kubelet-cgroups", instead: "write Slice= into the systemd unit, and leave it out here"},
	{field: "systemCgroups", flag: "system-cgroups", instead: onlySafe + "processes of the system are not moved"},
	{field: "cgroupRoot", flag: "cgroup-root"},
	{field: "cgroupsPerQOS", flag: "cgroups-per-qos", instead: onlySafe + "pods always have cgroups of their own"},
	{field: "cgroupDriver", flag: "cgroup-driver"},
	{field: "cpuManagerPolicy", flag: "cpu-manager-policy", instead: noPinning},
	{field: "singleProcessOOMKill"},
	{field: "cpuManagerPolicyOptions", flag: "cpu-manager-policy-options", instead: noPinning},
	{field: "cpuManagerReconcilePeriod", flag: "cpu-manager-reconcile-period", instead: noPinning},
	{field: "memoryManagerPolicy", flag: "memory-manager-policy", instead: noPinning},
	{field: "topologyManagerPolicy", flag: "topology-manager-policy", instead: noPinning},
	{field: "topologyManagerScope", flag: "topology-manager-scope", instead: noPinning},
	{field: "topologyManagerPolicyOptions", flag: "topology-manager-policy-options", instead: noPinning},
	{field: "qosReserved", flag: "qos-reserved", instead: onlySafe + "nothing is reserved for a class of pods"},
	{field: "runtimeRequestTimeout", flag: "runtime-request-timeout"},
	{field: "hairpinMode", flag: "hairpin-mode", instead: onlySafe + "the network of pods is the runtime's: write hairpinMode into its CNI configuration"},
	{field: "maxPods", flag: "max-pods"},
	{field: "podCIDR", flag: "pod-cidr", instead: onlySafe + "the addresses of pods come from the Node, or from the runtime's CNI configuration"},
	{field: "podPidsLimit", flag: "pod-max-pids"},
	{field: "resolvConf", flag: "resolv-conf"},
	{field: "runOnce", flag: "runonce", instead: onlySafe + "write `holdfast run` to run one pod to its end"},
	{field: "cpuCFSQuota", flag: "cpu-cfs-quota"},
	{field: "cpuCFSQuotaPeriod", flag: "cpu-cfs-quota-period"},
	{field: "nodeStatusMaxImages", flag: "node-status-max-images"},
	{field: "maxOpenFiles", flag: "max-open-files"},
	{field: "contentType", flag: "kube-api-content-type", instead: onlySafe + "the API is asked for protobuf where it has it"},
	{field: "kubeAPIQPS", flag: "kube-api-qps"},
	{field: "kubeAPIBurst", flag: "kube-api-burst"},
	{field: "serializeImagePulls", flag: "serialize-image-pulls"},
	{field: "maxParallelImagePulls"},
	{field: "evictionHard", flag: "eviction-hard"},
	{field: "evictionSoft", flag: "eviction-soft"},
	{field: "evictionSoftGracePeriod", flag: "eviction-soft-grace-period"},
	{field: "evictionPressureTransitionPeriod", flag: "eviction-pressure-transition-period"},
	{field: "evictionMaxPodGracePeriod", flag: "eviction-max-pod-grace-period"},
	{field: "evictionMinimumReclaim", flag: "eviction-minimum-reclaim"},
	{field: "mergeDefaultEvictionSettings"},
	{field: "podsPerCore", flag: "pods-per-core"},
	{field: "enableControllerAttachDetach", flag: "enable-controller-attach-detach", instead: onlySafe + "volumes are attached by the cluster's controller"},
	{field: "protectKernelDefaults", flag: "protect-kernel-defaults", instead: onlySafe + "settings of the kernel are neither checked nor changed: set vm.overcommit_memory, kernel.panic and kernel.panic_on_oops with sysctl.d"},
	{field: "makeIPTablesUtilChains", flag: "make-iptables-util-chains", instead: onlySafe + "no chains of iptables are made for others", also: []string{"false"}},
	{field: "iptablesMasqueradeBit", instead: onlySafe + "it means nothing in upstream's kubelet either: kube-proxy has a field of that name"},
	{field: "iptablesDropBit", instead: onlySafe + "it means nothing in upstream's kubelet either"},
	{field: "featureGates", flag: "feature-gates"},
	{field: "failSwapOn", flag: "fail-swap-on", instead: "turn swap off with swapoff -a; pods would use it"},
	{field: "memorySwap.swapBehavior", instead: noSwap, also: []string{`"NoSwap"`}},
	{field: "containerLogMaxSize", flag: "container-log-max-size"},
	{field: "containerLogMaxFiles", flag: "container-log-max-files"},
	{field: "containerLogMaxWorkers"},
	{field: "containerLogMonitorInterval"},
	{field: "configMapAndSecretChangeDetectionStrategy"},
	{field: "systemReserved", flag: "system-reserved"},
	{field: "kubeReserved", flag: "kube-reserved"},
	{field: "reservedSystemCPUs", flag: "reserved-cpus", instead: noPinning},
	{field: "showHiddenMetricsForVersion", instead: onlySafe + "no metrics are hidden"},
	{field: "systemReservedCgroup", flag: "system-reserved-cgroup", instead: onlySafe + "limits of the system's cgroup are systemd's: write MemoryMax= and CPUQuota= for its slice"},
	{field: "kubeReservedCgroup", flag: "kube-reserved-cgroup", instead: onlySafe + "limits of the kubelet's cgroup are systemd's: write MemoryMax= and CPUQuota= into its unit"},
	{field: "enforceNodeAllocatable", flag: "enforce-node-allocatable"},
	{field: "allowedUnsafeSysctls", flag: "allowed-unsafe-sysctls"},
	{field: "defaultPodSysctls", instead: onlySafe + "write securityContext.sysctls into the pods"},
	{field: "volumePluginDir", flag: "volume-plugin-dir", instead: onlySafe + "FlexVolume is not possible: use a CSI driver"},
	{field: "providerID", flag: "provider-id"},
	{field: "kernelMemcgNotification", flag: "kernel-memcg-notification", instead: onlySafe + "memory is measured every ten seconds"},
	{field: "logging.format", flag: "logging-format"},
	{field: "logging.flushFrequency", flag: "log-flush-frequency", instead: noLogOptions},
	{field: "logging.verbosity", flag: "v"},
	{field: "logging.vmodule", flag: "vmodule", instead: onlySafe + "write logging.verbosity, which is for all"},
	{field: "logging.options.text.splitStream", flag: "log-text-split-stream", instead: noLogOptions},
	{field: "logging.options.text.infoBufferSize", flag: "log-text-info-buffer-size", instead: noLogOptions},
	{field: "logging.options.json.splitStream", flag: "log-json-split-stream", instead: noLogOptions},
	{field: "logging.options.json.infoBufferSize", flag: "log-json-info-buffer-size", instead: noLogOptions},
	{field: "enableSystemLogHandler"},
	{field: "enableSystemLogQuery", instead: onlySafe + "only whole files of logs are given out"},
	{field: "shutdownGracePeriod"},
	{field: "shutdownGracePeriodCriticalPods"},
	{field: "shutdownGracePeriodByPodPriority"},
	{field: "crashLoopBackOff.maxContainerRestartPeriod"},
	{field: "reservedMemory", flag: "reserved-memory", instead: noPinning},
	{field: "enableProfilingHandler"},
	{field: "enableDebugFlagsHandler"},
	{field: "seccompDefault", flag: "seccomp-default"},
	{field: "memoryThrottlingFactor", instead: noMemoryQoS, also: []string{"0.9"}},
	{field: "memoryReservationPolicy", instead: noMemoryQoS},
	{field: "registerWithTaints", flag: "register-with-taints"},
	{field: "registerNode", flag: "register-node"},
	{field: "tracing", instead: noExporter},
	{field: "localStorageCapacityIsolation", flag: "local-storage-capacity-isolation", instead: onlySafe + "what pods store is always counted"},
	{field: "containerRuntimeEndpoint", flag: "container-runtime-endpoint"},
	{field: "imageServiceEndpoint", flag: "image-service-endpoint"},
	{field: "failCgroupV1", flag: "fail-cgroupv1"},
	{field: "userNamespaces.idsPerPod"},
}

// A complaint takes one thing that is wrong with a field.
type complaint func(field, format string, args ...any)

// checkRules complains of what is set and is not honoured.
func checkRules(k *v1beta1.KubeletConfiguration, wrong complaint) error {
	var is, byDefault map[string]any
	standard := Default()
	if err := convert(k, &is); err != nil {
		return err
	}
	if err := convert(&standard, &byDefault); err != nil {
		return err
	}
	for _, r := range rules {
		if r.instead == "" {
			continue
		}
		got, err := r.value(is)
		if err != nil {
			return err
		}
		want, err := r.value(byDefault)
		if err != nil {
			return err
		}
		if got != want && !slices.Contains(r.also, got) {
			wrong(r.field, "%s is not possible: %s", got, r.instead)
		}
	}
	return nil
}

// value returns the field's value in a document, as JSON; empty: it has none.
func (r rule) value(document map[string]any) (string, error) {
	value, ok := lookup(document, r.field)
	if !ok {
		return "", nil
	}
	data, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("field %s: %w", r.field, err)
	}
	return string(data), nil
}

// ruleOf returns the rule for a field, which may be that of one around it.
func ruleOf(field string) (rule, bool) {
	for _, r := range rules {
		if r.field == field || strings.HasPrefix(field, r.field+".") {
			return r, true
		}
	}
	return rule{}, false
}
