package kubelet

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/eviction"
	"github.com/holdfast-dev/holdfast/internal/kubelet/imagegc"
	"github.com/holdfast-dev/holdfast/internal/kubelet/logrotate"
	defaults "github.com/holdfast-dev/holdfast/internal/kubeletconfig"
)

// TestConfigureDefaults holds that upstream's defaults are those of the parts.
func TestConfigureDefaults(t *testing.T) {
	k := defaults.Default()
	var c Config
	if err := c.Configure(&k); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.ImageGC, imagegc.DefaultPolicy()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(c.LogRotation, logrotate.DefaultPolicy()); diff != "" {
		t.Error(diff)
	}
	if got, want := c.Eviction, eviction.DefaultPolicy(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if c.ImagePulls.QPS != 5 || c.ImagePulls.Burst != 10 || c.ImagePulls.MaxParallel != 1 || len(c.Shutdown) != 0 || c.LeaseDuration != 40*time.Second {
		t.Errorf("got %+v", c)
	}
}

func TestConfigurePulls(t *testing.T) {
	for name, test := range map[string]struct {
		change        func(*kubeletconfig.KubeletConfiguration)
		qps, parallel int
	}{
		"no bound":          {func(k *kubeletconfig.KubeletConfiguration) { k.RegistryPullQPS = new(int32(0)) }, -1, 1},
		"at once":           {func(k *kubeletconfig.KubeletConfiguration) { k.SerializeImagePulls = new(false) }, 5, -1},
		"three at once":     {func(k *kubeletconfig.KubeletConfiguration) { k.MaxParallelImagePulls = new(int32(3)) }, 5, 3},
		"one after another": {func(k *kubeletconfig.KubeletConfiguration) { k.MaxParallelImagePulls = new(int32(1)) }, 5, 1},
	} {
		t.Run(name, func(t *testing.T) {
			k := defaults.Default()
			test.change(&k)
			if got := imagePulls(&k); got.QPS != test.qps || got.MaxParallel != test.parallel {
				t.Errorf("got %+v, want QPS %d, MaxParallel %d", got, test.qps, test.parallel)
			}
		})
	}
}
