package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	settings "github.com/holdfast-dev/holdfast/internal/kubeletconfig"
)

// KubeletSettings are the fields of upstream's KubeletConfiguration
// (kubelet.config.k8s.io/v1beta1) that this node honours, with upstream's
// names, units and defaults. Any other field of it is an error.
type KubeletSettings struct {
	// CgroupDriver is who makes cgroups. Only cgroupfs is possible. Default cgroupfs.
	CgroupDriver string `json:"cgroupDriver,omitempty"`

	// FileCheckFrequency is the time between two readings of the manifest folder
	// when nothing tells of a change. Default 20s, which 0 is too; at least 1s.
	FileCheckFrequency metav1.Duration `json:"fileCheckFrequency,omitzero"`

	// HealthzPort is where the kubelet answers /healthz without TLS and without
	// asking who it is. Default 0: nowhere; upstream's is 10248, which two nodes
	// of one machine could not both have.
	HealthzPort *int32 `json:"healthzPort,omitempty"`
	// HealthzBindAddress is the address of HealthzPort. Default 127.0.0.1.
	HealthzBindAddress string `json:"healthzBindAddress,omitempty"`
	// SingleProcessOOMKill ends only the process that is over its container's memory
	// limit, not the whole container. Default false with cgroup v2, true with v1,
	// where false is not possible.
	SingleProcessOOMKill *bool `json:"singleProcessOOMKill,omitempty"`
	// RuntimeRequestTimeout bounds every call of the container runtime but pulls;
	// the start of a sandbox may take twice as long, and a stop its grace period
	// beside. Default 2m, which 0 is too; at least 1s.
	RuntimeRequestTimeout metav1.Duration `json:"runtimeRequestTimeout,omitzero"`

	// ImageMinimumGCAge is how long an image that nobody uses is kept though
	// the disk is full. Default 2m, which 0 is too.
	ImageMinimumGCAge metav1.Duration `json:"imageMinimumGCAge,omitzero"`
	// ImageMaximumGCAge is how long an image may be unused before it is
	// removed. Default 0: as long as there is room. Otherwise more than
	// ImageMinimumGCAge.
	ImageMaximumGCAge metav1.Duration `json:"imageMaximumGCAge,omitzero"`
	// ImageGCHighThresholdPercent is how full the images' disk may be before
	// unused images are removed. Default 85; 100: none is.
	ImageGCHighThresholdPercent *int32 `json:"imageGCHighThresholdPercent,omitempty"`
	// ImageGCLowThresholdPercent is how full the disk is to be after that.
	// Default 80; less than the other.
	ImageGCLowThresholdPercent *int32 `json:"imageGCLowThresholdPercent,omitempty"`

	// RegistryPullQPS is how many pulls of images may begin in a second. Default 5;
	// 0: any number. RegistryBurst is how many may begin at once after a while with
	// none. Default 10, which 0 is too. One too many fails, and is tried again.
	RegistryPullQPS *int32 `json:"registryPullQPS,omitempty"`
	RegistryBurst   int32  `json:"registryBurst,omitempty"`
	// SerializeImagePulls is whether one image is pulled after the other. Default:
	// true, but false where MaxParallelImagePulls is more than 1.
	SerializeImagePulls *bool `json:"serializeImagePulls,omitempty"`
	// MaxParallelImagePulls is how many images are pulled at once. Default: any
	// number, where SerializeImagePulls is false.
	MaxParallelImagePulls *int32 `json:"maxParallelImagePulls,omitempty"`
	// ImagePullCredentialsVerificationPolicy says for which images that are there a
	// pod has to show that it may have them. Default NeverVerifyPreloadedImages.
	ImagePullCredentialsVerificationPolicy kubeletconfig.ImagePullCredentialsVerificationPolicy `json:"imagePullCredentialsVerificationPolicy,omitempty"`
	// PreloadedImagesVerificationAllowlist names images for the policy
	// NeverVerifyAllowlistedImages. Default: none.
	PreloadedImagesVerificationAllowlist []string `json:"preloadedImagesVerificationAllowlist,omitempty"`

	// CrashLoopBackOff holds the longest pause before a container that crashed
	// starts again. Default 300s, at least 1s.
	CrashLoopBackOff kubeletconfig.CrashLoopBackOffConfig `json:"crashLoopBackOff,omitzero"`

	// SeccompDefault gives the runtime's seccomp profile to containers that name
	// none. Default false: they are unconfined.
	SeccompDefault bool `json:"seccompDefault,omitempty"`
	// AllowedUnsafeSysctls are kernel settings that pods may have beside the safe
	// ones, such as net.core.somaxconn, or net.* for all that begin like it.
	// Default: none.
	AllowedUnsafeSysctls []string `json:"allowedUnsafeSysctls,omitempty"`
	// UserNamespaces says how pods with users of their own get them.
	UserNamespaces UserNamespaceSettings `json:"userNamespaces,omitzero"`

	// ContainerLogMaxSize is a quantity of bytes: how large a container's log
	// grows before it is rotated. Default 10Mi; negative: it never is.
	ContainerLogMaxSize string `json:"containerLogMaxSize,omitempty"`
	// ContainerLogMaxFiles is how many files there are of one container's log.
	// Default 5, at least 2.
	ContainerLogMaxFiles *int32 `json:"containerLogMaxFiles,omitempty"`
	// ContainerLogMaxWorkers is how many logs are rotated at once. Default 1.
	ContainerLogMaxWorkers *int32 `json:"containerLogMaxWorkers,omitempty"`
	// ContainerLogMonitorInterval is the time between two looks at the sizes of
	// logs. Default 10s, at least 3s.
	ContainerLogMonitorInterval *metav1.Duration `json:"containerLogMonitorInterval,omitempty"`

	// ShutdownGracePeriod is how long all pods together may take to end when the
	// machine goes down. Default 0: they are not ended in order; at least 1s.
	ShutdownGracePeriod metav1.Duration `json:"shutdownGracePeriod,omitzero"`
	// ShutdownGracePeriodCriticalPods is the part of it that critical pods get, after
	// the others. Default 0; at least 1s.
	ShutdownGracePeriodCriticalPods metav1.Duration `json:"shutdownGracePeriodCriticalPods,omitzero"`
	// ShutdownGracePeriodByPodPriority takes the place of both: how long pods get of
	// a priority and of those up to the next in the list, which come after them.
	ShutdownGracePeriodByPodPriority []kubeletconfig.ShutdownGracePeriodByPodPriority `json:"shutdownGracePeriodByPodPriority,omitempty"`

	// ConfigMapAndSecretChangeDetectionStrategy is how changes of ConfigMaps and
	// Secrets are found: Watch, Cache or Get. Default Watch.
	ConfigMapAndSecretChangeDetectionStrategy kubeletconfig.ResourceChangeDetectionStrategy `json:"configMapAndSecretChangeDetectionStrategy,omitempty"`

	// VolumeStatsAggPeriod is the time from one measurement of what a volume takes to
	// the next. Default 1m, which 0 is too; negative: volumes are measured only for
	// limits of pods, and when the disk is low.
	VolumeStatsAggPeriod metav1.Duration `json:"volumeStatsAggPeriod,omitzero"`

	EvictionSettings
	TLSSettings

	// PodPidsLimit is how many processes and threads one pod may have. Default
	// -1: no limit, which 0 is too.
	PodPidsLimit *int64 `json:"podPidsLimit,omitempty"`
}

// UserNamespaceSettings are upstream's UserNamespaces.
type UserNamespaceSettings struct {
	// IDsPerPod is how many user and group IDs a pod with hostUsers: false gets,
	// a multiple of 65536. Default 65536. Pods that run keep what they have.
	IDsPerPod *int64 `json:"idsPerPod,omitempty"`
}

const localhost = "127.0.0.1"

// validate returns everything that is wrong, by the rules of `holdfast kubelet`.
func (k *KubeletSettings) validate() []error {
	full, err := k.complete()
	if err != nil {
		return []error{err}
	}
	var errs []error
	if k.CgroupDriver == "systemd" {
		errs = append(errs, errors.New(`kubelet.cgroupDriver: "systemd" is not possible: this version makes the cgroups of pods itself, without systemd; leave the field out`))
	}
	if k.PodPidsLimit != nil && *k.PodPidsLimit < -1 {
		errs = append(errs, fmt.Errorf("kubelet.podPidsLimit: %d is no number of processes: more than 0, or -1 for no limit", *k.PodPidsLimit))
	}
	for _, w := range settings.Validate(full) {
		errs = append(errs, fmt.Errorf("kubelet.%s: %s", w.Field, w.Message))
	}
	return append(errs, k.EvictionSettings.validate()...)
}

// complete returns the settings as a whole configuration, with upstream's defaults.
func (k *KubeletSettings) complete() (*kubeletconfig.KubeletConfiguration, error) {
	full := new(kubeletconfig.KubeletConfiguration)
	written, err := json.Marshal(k)
	if err == nil {
		err = json.Unmarshal(written, full)
	}
	if err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	settings.SetDefaults(full)
	return full, nil
}

// checkKubelet refuses, with the line, what the section "kubelet" cannot hold.
func checkKubelet(section *yamlv3.Node) []error {
	if section.Tag == "!!null" {
		return nil
	}
	if section.Kind != yamlv3.MappingNode {
		return []error{fmt.Errorf("line %d: kubelet holds no fields", section.Line)}
	}
	honoured := jsonFields(reflect.TypeFor[KubeletSettings]())
	upstream := jsonFields(reflect.TypeFor[kubeletconfig.KubeletConfiguration]())
	return checkFields(section, "kubelet.", func(name string, value *yamlv3.Node) error {
		switch {
		case slices.Contains(honoured, name):
			return decodeField[KubeletSettings]("kubelet", name, value)
		case name == "apiVersion" || name == "kind":
			return fmt.Errorf("kubelet.%s: leave it out; the section has a version with the whole file", name)
		case urlFields[name] != "":
			return fmt.Errorf("kubelet.%s: write %s instead", name, urlFields[name])
		case slices.Contains(upstream, name):
			return fmt.Errorf("kubelet.%s is a field of KubeletConfiguration that is not honoured yet by this version; remove it (honoured are %s)",
				name, strings.Join(honoured, ", "))
		default:
			return fmt.Errorf("unknown field \"kubelet.%s\" (there are %s)", name, strings.Join(honoured, ", "))
		}
	})
}

// decodeField says what is wrong with one value of a section of type T, by the
// field's name, which the decoder of the whole does not always do.
func decodeField[T any](section, name string, value *yamlv3.Node) error {
	text, err := yamlv3.Marshal(map[string]*yamlv3.Node{name: value})
	if err != nil {
		return err
	}
	var settings T
	if err := yaml.UnmarshalStrict(text, &settings); err != nil {
		why := err
		for next := errors.Unwrap(why); next != nil; next = errors.Unwrap(why) {
			why = next // the decoder's frame says nothing to who wrote the file
		}
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](why); ok {
			return fmt.Errorf("%s.%s: want %s, not %s%s", section, name, wrong.Type.Kind(), wrong.Value, quoteHint(wrong, value))
		}
		return fmt.Errorf("%s.%s: %s", section, name, strings.TrimPrefix(why.Error(), "json: "))
	}
	return nil
}

// quoteHint says how a value is written where text is wanted and YAML takes what
// is there for something else; empty: it is not known which.
func quoteHint(wrong *json.UnmarshalTypeError, value *yamlv3.Node) string {
	if wrong.Type.Kind() != reflect.String {
		return ""
	}
	if value.Kind == yamlv3.ScalarNode {
		return ": write it in quotes, and a length of time with its unit, such as \"30s\""
	}
	var hints []string
	for fields := value.Content; value.Kind == yamlv3.MappingNode && len(fields) > 0; fields = fields[2:] {
		if v := fields[1]; v.Kind == yamlv3.ScalarNode && v.Tag != "!!str" {
			hints = append(hints, fmt.Sprintf("%s: %q", fields[0].Value, v.Value))
		}
	}
	if len(hints) == 0 {
		return ""
	}
	return ": write " + strings.Join(hints, ", ")
}

// jsonFields returns the names of a struct's fields in JSON.
func jsonFields(of reflect.Type) []string {
	var names []string
	for field := range of.Fields() {
		if field.Anonymous && field.Tag.Get("json") == "" {
			names = append(names, jsonFields(field.Type)...)
		}
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}
