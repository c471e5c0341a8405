package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/kubelet"
	"github.com/holdfast-dev/holdfast/internal/kubelet/imagegc"
	"github.com/holdfast-dev/holdfast/internal/kubelet/imagerights"
	"github.com/holdfast-dev/holdfast/internal/kubelet/logrotate"
	"github.com/holdfast-dev/holdfast/internal/kubelet/nodeshutdown"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podsync"
)

func loadKubelet(t *testing.T, section string) (KubeletSettings, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "node.yaml")
	text := "apiVersion: holdfast.dev/v1alpha1\nkind: NodeConfiguration\nkubelet:\n" + section
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := LoadConfig(path)
	return cfg.Kubelet, err
}

// agentOf returns what settings say to the agent.
func agentOf(t *testing.T, k KubeletSettings) kubelet.Config {
	t.Helper()
	if errs := k.validate(); errs != nil {
		t.Fatal(errs)
	}
	c, err := inForce(Config{Kubelet: k}, &instance.Instance{Root: "/srv/node", ID: "ab12cd"}, "unix:///run/r.sock", 11250)
	if err != nil {
		t.Fatal(err)
	}
	var agent kubelet.Config
	if err := agent.Configure(c); err != nil {
		t.Fatal(err)
	}
	return agent
}

func TestKubeletSettings(t *testing.T) {
	got, err := loadKubelet(t, `  cgroupDriver: cgroupfs
  seccompDefault: true
  allowedUnsafeSysctls: [net.core.somaxconn, "kernel.msg*"]
  userNamespaces: {idsPerPod: 131072}
  fileCheckFrequency: 5s
  runtimeRequestTimeout: 4m
  imageMinimumGCAge: 30s
  imageMaximumGCAge: 24h
  imageGCHighThresholdPercent: 70
  imageGCLowThresholdPercent: 0
  containerLogMaxSize: 1Mi
  containerLogMaxFiles: 3
  containerLogMaxWorkers: 2
  containerLogMonitorInterval: 5s
  shutdownGracePeriod: 30s
  shutdownGracePeriodCriticalPods: 10s
  configMapAndSecretChangeDetectionStrategy: Cache
`)
	if err != nil {
		t.Fatal(err)
	}
	agent := agentOf(t, got)
	if !agent.SeccompDefault || len(agent.UnsafeSysctls) != 2 || agent.UserIDsPerPod != 131072 {
		t.Errorf("settings of pods' security: got %v, %v, %v", agent.SeccompDefault, agent.UnsafeSysctls, agent.UserIDsPerPod)
	}
	if diff := cmp.Diff(agent.Shutdown, nodeshutdown.Periods(30*time.Second, 10*time.Second)); diff != "" {
		t.Error(diff)
	}
	if agent.ChangeDetection != "Cache" {
		t.Errorf("configMapAndSecretChangeDetectionStrategy: got %q", agent.ChangeDetection)
	}
	if got.FileCheckFrequency.Duration != 5*time.Second {
		t.Errorf("fileCheckFrequency: got %v", got.FileCheckFrequency)
	}
	if agent.RuntimeTimeout != 4*time.Minute {
		t.Errorf("runtimeRequestTimeout: got %v", agent.RuntimeTimeout)
	}
	wantImages := imagegc.Policy{HighThresholdPercent: 70, MinAge: 30 * time.Second, MaxAge: 24 * time.Hour}
	if diff := cmp.Diff(agent.ImageGC, wantImages); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(agent.LogRotation, logrotate.Policy{MaxSize: 1 << 20, MaxFiles: 3, Workers: 2, Interval: 5 * time.Second}); diff != "" {
		t.Error(diff)
	}
}

func TestImagePulls(t *testing.T) {
	preloaded := imagerights.Policy{Kind: "NeverVerifyPreloadedImages"}
	for section, want := range map[string]podsync.Pulls{
		"":                               {QPS: 5, Burst: 10, MaxParallel: 1, Verify: preloaded},
		"  serializeImagePulls: true\n":  {QPS: 5, Burst: 10, MaxParallel: 1, Verify: preloaded},
		"  serializeImagePulls: false\n": {QPS: 5, Burst: 10, MaxParallel: -1, Verify: preloaded},
		"  maxParallelImagePulls: 5\n":   {QPS: 5, Burst: 10, MaxParallel: 5, Verify: preloaded},
		"  serializeImagePulls: false\n  maxParallelImagePulls: 1\n": {
			QPS: 5, Burst: 10, MaxParallel: 1, Verify: preloaded,
		},
		"  registryPullQPS: 0\n": {QPS: -1, Burst: 10, MaxParallel: 1, Verify: preloaded},
		"  registryPullQPS: 7\n  registryBurst: 3\n": {
			QPS: 7, Burst: 3, MaxParallel: 1, Verify: preloaded,
		},
		"  imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\n  preloadedImagesVerificationAllowlist: [reg.example/*]\n": {
			QPS: 5, Burst: 10, MaxParallel: 1,
			Verify: imagerights.Policy{Kind: "NeverVerifyAllowlistedImages", Allowlist: []string{"reg.example/*"}},
		},
	} {
		t.Run(section, func(t *testing.T) {
			got, err := loadKubelet(t, section)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(agentOf(t, got).ImagePulls, want); diff != "" {
				t.Errorf("got -, want +:\n%s", diff)
			}
		})
	}
	got, err := loadKubelet(t, "  crashLoopBackOff: {maxContainerRestartPeriod: 20s}\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := agentOf(t, got).MaxRestartPeriod; got != 20*time.Second {
		t.Errorf("maxContainerRestartPeriod: got %v, want 20s", got)
	}
}

// TestKubeletDefaults holds upstream's defaults.
func TestKubeletDefaults(t *testing.T) {
	for name, section := range map[string]string{"nothing": "", "zero": "  imageMinimumGCAge: 0s\n  imageMaximumGCAge: 0s\n"} {
		t.Run(name, func(t *testing.T) {
			got, err := loadKubelet(t, section)
			if err != nil {
				t.Fatal(err)
			}
			agent := agentOf(t, got)
			if diff := cmp.Diff(agent.ImageGC, imagegc.Policy{HighThresholdPercent: 85, LowThresholdPercent: 80, MinAge: 2 * time.Minute}); diff != "" {
				t.Error(diff)
			}
			if agent.Shutdown != nil {
				t.Errorf("periods of a shutdown: %v", agent.Shutdown)
			}
			if diff := cmp.Diff(agent.LogRotation, logrotate.Policy{MaxSize: 10 << 20, MaxFiles: 5, Workers: 1, Interval: 10 * time.Second}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestKubeletFieldsRefused(t *testing.T) {
	for name, test := range map[string]struct{ section, want string }{
		"not honoured":       {"  cpuManagerPolicy: static\n", "line 4: kubelet.cpuManagerPolicy is a field of KubeletConfiguration that is not honoured yet by this version"},
		"unknown":            {"  imageGCThreshold: 3\n", `line 4: unknown field "kubelet.imageGCThreshold"`},
		"another case":       {"  imagegchighthresholdpercent: 3\n", `line 4: unknown field "kubelet.imagegchighthresholdpercent"`},
		"twice":              {"  containerLogMaxFiles: 3\n  containerLogMaxFiles: 4\n", `line 5: field "kubelet.containerLogMaxFiles" is written twice`},
		"a kind":             {"  kind: KubeletConfiguration\n", "kubelet.kind: leave it out"},
		"a list":             {"  - a\n", "kubelet holds no fields"},
		"no duration":        {"  imageMinimumGCAge: soon\n", `line 4: kubelet.imageMinimumGCAge: time: invalid duration "soon"`},
		"text, not a number": {"  containerLogMaxFiles: many\n", "line 4: kubelet.containerLogMaxFiles: want int32, not string"},
		"number, not text":   {"  imageMinimumGCAge: 5\n", "line 4: kubelet.imageMinimumGCAge: want string, not number: write it in quotes, and a length of time with its unit"},
		"no such field":      {"  shutdownGracePeriodByPodPriority: [{priority: 5, seconds: 4}]\n", "line 4: kubelet.shutdownGracePeriodByPodPriority: unknown field \"seconds\""},
		"anonymous":          {"  authentication: {anonymous: {enabled: true}}\n", "line 4: kubelet.authentication: unknown field \"anonymous\""},
		"numbers, not text":  {"  evictionHard: {memory.available: 1Gi, pid.available: 100}\n", "line 4: kubelet.evictionHard: want string, not number: write pid.available: \"100\""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadKubelet(t, test.section)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

// TestKubeletSettingsValidated holds upstream's rules of validation.
func TestKubeletSettingsValidated(t *testing.T) {
	for name, test := range map[string]struct{ section, want string }{
		"systemd":              {"cgroupDriver: systemd", `kubelet.cgroupDriver: "systemd" is not possible`},
		"another driver":       {"cgroupDriver: none", `kubelet.cgroupDriver: "none" is not known`},
		"low is high":          {"imageGCLowThresholdPercent: 85", "imageGCLowThresholdPercent: 85 must be less than imageGCHighThresholdPercent, which is 85"},
		"high below default":   {"imageGCHighThresholdPercent: 70", "80 must be less than"},
		"high too high":        {"imageGCHighThresholdPercent: 101", "101 must be from 0 to 100"},
		"low negative":         {"imageGCLowThresholdPercent: -1", "-1 must be from 0 to 100"},
		"age negative":         {"imageMinimumGCAge: -1s", "imageMinimumGCAge: -1s must not be negative"},
		"max age negative":     {"imageMaximumGCAge: -1s", "imageMaximumGCAge: -1s must not be negative"},
		"max age is min age":   {"imageMaximumGCAge: 2m", "imageMaximumGCAge: 2m0s must be more than imageMinimumGCAge, which is 2m0s"},
		"sysctl of the host":   {"allowedUnsafeSysctls: [vm.swappiness]", `allowedUnsafeSysctls: the sysctls "vm.swappiness" are not known to be namespaced`},
		"too few users":        {"userNamespaces: {idsPerPod: 1000}", "userNamespaces.idsPerPod: 1000 must be a multiple of 65536"},
		"no quantity":          {"containerLogMaxSize: big", `containerLogMaxSize: "big" is no quantity`},
		"size of nothing":      {`containerLogMaxSize: "0"`, "containerLogMaxSize: 0 would rotate"},
		"one file":             {"containerLogMaxFiles: 1", "containerLogMaxFiles: 1 is too few"},
		"no worker":            {"containerLogMaxWorkers: 0", "containerLogMaxWorkers: 0 is too few"},
		"reading all the time": {"fileCheckFrequency: 10ms", "fileCheckFrequency: 10ms is too short"},
		"negative QPS":         {"registryPullQPS: -1", "registryPullQPS: -1 is too few: at least 0"},
		"negative burst":       {"registryBurst: -1", "registryBurst: -1 is too few: at least 0"},
		"no pulls":             {"maxParallelImagePulls: 0", "maxParallelImagePulls: 0 is too few"},
		"parallel in a row":    {"{serializeImagePulls: true, maxParallelImagePulls: 2}", "maxParallelImagePulls: 2 is more than serializeImagePulls leaves"},
		"no policy":            {"imagePullCredentialsVerificationPolicy: Maybe", `kubelet.imagePullCredentialsVerificationPolicy: "Maybe" is not known`},
		"list without policy":  {"preloadedImagesVerificationAllowlist: [a]", "preloadedImagesVerificationAllowlist: is only for"},
		"no pause":             {"crashLoopBackOff: {maxContainerRestartPeriod: 10ms}", "crashLoopBackOff.maxContainerRestartPeriod: 10ms is too short: at least 1s"},
		"no time for a start":  {"runtimeRequestTimeout: 10ms", "runtimeRequestTimeout: 10ms is too short"},
		"no such strategy":     {"configMapAndSecretChangeDetectionStrategy: Poll", `configMapAndSecretChangeDetectionStrategy: "Poll" is not known`},
		"critical is more":     {"shutdownGracePeriodCriticalPods: 5s", "shutdownGracePeriodCriticalPods: 5s is a part of shutdownGracePeriod, which is 0s"},
		"no time to end":       {"shutdownGracePeriod: 10ms", "shutdownGracePeriod: 10ms must be 0, or 1s or more"},
		"both ways": {
			"shutdownGracePeriod: 10s\n  shutdownGracePeriodByPodPriority:\n  - {priority: 0, shutdownGracePeriodSeconds: 5}", "shutdownGracePeriodByPodPriority: takes the place of shutdownGracePeriod",
		},
		"a negative time": {
			"shutdownGracePeriodByPodPriority:\n  - {priority: 0, shutdownGracePeriodSeconds: -5}", "shutdownGracePeriodByPodPriority[0]: shutdownGracePeriodSeconds -5 must not be negative",
		},
		"a priority twice": {
			"shutdownGracePeriodByPodPriority:\n  - {priority: 7, shutdownGracePeriodSeconds: 5}\n  - {priority: 7, shutdownGracePeriodSeconds: 6}",
			"shutdownGracePeriodByPodPriority[1]: priority 7 is written twice",
		},
		"half of a pair":       {"tlsCertFile: /etc/tls.crt", "kubelet.tlsCertFile: belongs together with tlsPrivateKeyFile"},
		"a relative path":      {"authentication: {x509: {clientCAFile: ca.crt}}", `kubelet.authentication.x509.clientCAFile: "ca.crt" must be an absolute path`},
		"looking all the time": {"containerLogMonitorInterval: 1s", "containerLogMonitorInterval: 1s is too short"},
	} {
		t.Run(name, func(t *testing.T) {
			settings, err := loadKubelet(t, "  "+test.section+"\n")
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := Config{NodeName: "edge-1", Kubelet: settings}.Complete()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %+v, %v, want %q in the error", cfg.Kubelet, err, test.want)
			}
		})
	}
	settings, err := loadKubelet(t, "  containerLogMaxSize: \"-1\"\n")
	if errs := settings.validate(); err != nil || errs != nil {
		t.Errorf("no rotation: %v, %v", err, errs)
	}
}

// TestShutdownByPriority holds that the list is taken as it is, and that a field
// that upstream does not know is told.
func TestShutdownByPriority(t *testing.T) {
	got, err := loadKubelet(t, "  shutdownGracePeriodByPodPriority:\n  - {priority: 1000, shutdownGracePeriodSeconds: 20}\n  - {priority: 0, shutdownGracePeriodSeconds: 10}\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []nodeshutdown.Period{{Priority: 1000, Grace: 20 * time.Second}, {Priority: 0, Grace: 10 * time.Second}}
	if diff := cmp.Diff(agentOf(t, got).Shutdown, want); diff != "" {
		t.Error(diff)
	}
	_, err = loadKubelet(t, "  shutdownGracePeriodByPodPriority:\n  - {priority: 0, seconds: 10}\n")
	if err == nil || !strings.Contains(err.Error(), `unknown field "seconds"`) {
		t.Errorf("got %v", err)
	}
}
