package kubelethost

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/kubelet/config/v1beta1"
)

func configuration(change func(*v1beta1.KubeletConfiguration)) *v1beta1.KubeletConfiguration {
	k := &v1beta1.KubeletConfiguration{FailCgroupV1: new(true), FailSwapOn: new(true)}
	if change != nil {
		change(k)
	}
	return k
}

func TestRefuses(t *testing.T) {
	old, swapping := Host{}, Host{CgroupV2: true, Swaps: []string{"/dev/sda2", "/swap"}}
	for name, c := range map[string]struct {
		host   Host
		change func(*v1beta1.KubeletConfiguration)
		want   string // empty: nothing is refused
	}{
		"a machine of today":    {host: Host{CgroupV2: true}},
		"cgroup v1":             {host: old, want: "kubelet is configured to not run on a host using cgroup v1"},
		"cgroup v1 is wanted":   {host: old, change: func(k *v1beta1.KubeletConfiguration) { k.FailCgroupV1 = new(false) }},
		"swap":                  {host: swapping, want: "the machine swaps to /dev/sda2, /swap"},
		"swap does not matter":  {host: swapping, change: func(k *v1beta1.KubeletConfiguration) { k.FailSwapOn = new(false) }},
		"whole containers, v2":  {host: Host{CgroupV2: true}, change: func(k *v1beta1.KubeletConfiguration) { k.SingleProcessOOMKill = new(false) }},
		"single processes, v1":  {host: old, change: func(k *v1beta1.KubeletConfiguration) { k.FailCgroupV1, k.SingleProcessOOMKill = new(false), new(true) }},
		"whole containers, v1":  {host: old, change: func(k *v1beta1.KubeletConfiguration) { k.FailCgroupV1, k.SingleProcessOOMKill = new(false), new(false) }, want: "singleProcessOOMKill: false is not possible"},
		"both are said at once": {host: Host{Swaps: []string{"/swap"}}, want: "failCgroupV1: false\nthe machine swaps"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.host.Refuses(configuration(c.change))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if got := len(old.Warnings()); got != 1 {
		t.Errorf("got %d warnings about cgroup v1, want 1", got)
	}
	if got := swapping.Warnings(); got != nil {
		t.Errorf("got warnings %v about cgroup v2", got)
	}
}

func TestParseSwaps(t *testing.T) {
	const head = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"no file": {"", nil},
		"none":    {head, nil},
		"two":     {head + "/dev/sda2 partition 1 0 -2\n/swap file 1 0 -3\n", []string{"/dev/sda2", "/swap"}},
	} {
		if got := parseSwaps([]byte(c.text)); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestRead(t *testing.T) {
	if _, err := Read(); err != nil {
		t.Error(err)
	}
}

// TestSetOOMScore holds that a score which is there already needs no right.
func TestSetOOMScore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "oom_score_adj")
	if err := os.WriteFile(file, []byte("-999\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, score := range []int{-999, 500} {
		if err := setOOMScore(file, score); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "500" {
		t.Errorf("got %q, %v, want 500", got, err)
	}
	if err := setOOMScore(filepath.Join(t.TempDir(), "none", "file"), 1); err == nil {
		t.Error("no error of a file that cannot be written")
	}
}
