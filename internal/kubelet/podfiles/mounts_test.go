package podfiles

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestRecursiveReadOnly(t *testing.T) {
	off, maybe, on := v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled
	shared := v1.MountPropagationHostToContainer
	none := v1.MountPropagationNone
	tests := map[string]struct {
		mount v1.VolumeMount
		can   bool
		want  bool
		err   string
	}{
		"not asked for":          {v1.VolumeMount{ReadOnly: true}, true, false, ""},
		"disabled":               {v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &off}, true, false, ""},
		"enabled":                {v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &on, MountPropagation: &none}, true, true, ""},
		"if possible, it is":     {v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &maybe}, true, true, ""},
		"if possible, it is not": {v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &maybe}, false, false, ""},
		"the runtime cannot":     {v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &on}, false, false, "not supported by the runtime"},
		"not read-only":          {v1.VolumeMount{RecursiveReadOnly: &on}, true, false, "not read-only"},
		"it changes with the host": {
			v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &on, MountPropagation: &shared}, true, false, `not compatible with propagation "HostToContainer"`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.mount.Name = "v"
			got, err := RecursiveReadOnly(&test.mount, test.can)
			if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, %v; want %v, %q", got, err, test.want, test.err)
			}
		})
	}
	if m := VolumeMount(&v1.Pod{}, &v1.VolumeMount{ReadOnly: true}, "/x", true); !m.GetRecursiveReadOnly() {
		t.Error("the runtime is not told")
	}
}
