package node

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/kubelet/eviction"
)

func TestEvictionSettings(t *testing.T) {
	got, err := loadKubelet(t, `  evictionHard: {memory.available: 200Mi, nodefs.available: 0%}
  mergeDefaultEvictionSettings: true
  evictionSoft: {pid.available: 20%}
  evictionSoftGracePeriod: {pid.available: 90s}
  evictionMinimumReclaim: {memory.available: 50Mi}
  evictionPressureTransitionPeriod: 30s
  evictionMaxPodGracePeriod: 60
  podPidsLimit: 1000
`)
	if err != nil {
		t.Fatal(err)
	}
	agent := agentOf(t, got)
	want, err := eviction.Parse(eviction.Settings{
		Hard: map[string]string{"memory.available": "200Mi", "nodefs.available": "0%"}, MergeDefaults: true,
		Soft: map[string]string{"pid.available": "20%"}, SoftGracePeriod: map[string]string{"pid.available": "90s"},
		MinimumReclaim: map[string]string{"memory.available": "50Mi"}, TransitionPeriod: 30 * time.Second, MaxPodGracePeriod: 60,
	})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(agent.Eviction, want) {
		t.Errorf("policy %+v, want %+v", agent.Eviction, want)
	}
	if agent.PodPidsLimit != 1000 {
		t.Errorf("podPidsLimit %d", agent.PodPidsLimit)
	}
	none, err := loadKubelet(t, "  evictionHard: {}\n")
	if err != nil {
		t.Fatal(err)
	}
	if policy := agentOf(t, none).Eviction; reflect.DeepEqual(policy, eviction.DefaultPolicy()) {
		t.Errorf("no thresholds: %+v", policy)
	}
	defaults, err := loadKubelet(t, "")
	if err != nil {
		t.Fatal(err)
	}
	if agent := agentOf(t, defaults); !reflect.DeepEqual(agent.Eviction, eviction.DefaultPolicy()) || agent.PodPidsLimit != -1 {
		t.Errorf("defaults: %+v, podPidsLimit %d", agent.Eviction, agent.PodPidsLimit)
	}
}

func TestEvictionSettingsValidated(t *testing.T) {
	for name, test := range map[string]struct{ section, want string }{
		"pids of nobody":      {"podPidsLimit: -2", "kubelet.podPidsLimit: -2 is no number of processes"},
		"no signal":           {"evictionHard: {memory.free: 1Gi}", `kubelet.evictionHard: unsupported eviction signal "memory.free"`},
		"no amount":           {"evictionHard: {memory.available: little}", `kubelet.evictionHard: memory.available: "little" is no quantity`},
		"soft without a time": {"evictionSoft: {memory.available: 1Gi}", "kubelet.evictionSoftGracePeriod: the soft threshold of memory.available needs a grace period"},
		"no minimum":          {"evictionMinimumReclaim: {nodefs.available: 0%}", `kubelet.evictionMinimumReclaim: nodefs.available: "0%" must be more than 0%`},
		"transition negative": {"evictionPressureTransitionPeriod: -1s", "kubelet.evictionPressureTransitionPeriod -1s must not be negative"},
		"grace negative":      {"evictionMaxPodGracePeriod: -1", "kubelet.evictionMaxPodGracePeriod -1 must not be negative"},
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
}
