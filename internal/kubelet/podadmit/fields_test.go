package podadmit

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestEveryFieldHasARule holds that no field of the API is ignored silently:
// one that a new API version adds fails here until somebody decides.
func TestEveryFieldHasARule(t *testing.T) {
	seen := map[string]bool{}
	visit(t, reflect.TypeFor[v1.PodSpec](), "", seen)
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !seen[key] {
			t.Errorf("%s has a rule and is no field", key)
		}
	}
}

func visit(t *testing.T, s reflect.Type, key string, seen map[string]bool) {
	t.Helper()
	for field := range s.Fields() {
		name := jsonName(field)
		if name == "" {
			visit(t, field.Type, keyOf(field.Type, key), seen)
			continue
		}
		at := join(key, name)
		first := !seen[at]
		seen[at] = true
		r, ok := fields[at]
		if !ok {
			t.Errorf("%s (%v) has no rule", at, field.Type)
			continue
		}
		inner := field.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if first && !r.whole && isStruct(inner) {
			visit(t, inner, keyOf(inner, at), seen)
		}
	}
}

func TestUnsupportedField(t *testing.T) {
	tests := map[string]struct {
		change func(*v1.PodSpec)
		have   Features
		want   string // beginning of the message; empty: taken
	}{
		"plain": {change: func(*v1.PodSpec) {}},
		"probe without a prober": {
			change: func(s *v1.PodSpec) { s.Containers[1].LivenessProbe = &v1.Probe{} },
			want:   "spec.containers[1].livenessProbe: ",
		},
		"probe with a prober": {
			change: func(s *v1.PodSpec) { s.Containers[1].LivenessProbe = &v1.Probe{PeriodSeconds: 3} },
			have:   Features{Probes: true},
		},
		"raw device": {
			change: func(s *v1.PodSpec) {
				s.InitContainers = []v1.Container{{VolumeDevices: []v1.VolumeDevice{{Name: "x"}}}}
			},
		},
		"claim of an init container": {
			change: func(s *v1.PodSpec) {
				s.InitContainers = []v1.Container{{Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "x"}}}}}
			},
			want: "spec.initContainers[0].resources.claims: ",
		},
		"of an ephemeral container": {
			change: func(s *v1.PodSpec) {
				s.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{
					VolumeMounts: []v1.VolumeMount{{Name: "v"}, {Name: "w", BindMountOptions: []string{"noexec"}}},
				}}}
			},
			want: "spec.ephemeralContainers[0].volumeMounts[1].bindMountOptions: ",
		},
		"hook over HTTP/2": {
			change: func(s *v1.PodSpec) {
				s.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Protocol: new(v1.HTTPProtocolHTTP2)}}}
			},
			want: "spec.containers[0].lifecycle.preStop.httpGet.protocol: ",
		},
		"user namespace": {change: func(s *v1.PodSpec) { s.HostUsers = new(false) }},
		"host's users":   {change: func(s *v1.PodSpec) { s.HostUsers = new(true) }},
		"runtime class":  {change: func(s *v1.PodSpec) { s.RuntimeClassName = new("gvisor") }},
		"devices": {
			change: func(s *v1.PodSpec) { s.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu"}} },
			want:   "spec.resourceClaims: ",
		},
		"labels by a mount option": {
			change: func(s *v1.PodSpec) {
				s.SecurityContext = &v1.PodSecurityContext{SELinuxChangePolicy: new(v1.SELinuxChangePolicyMountOption)}
			},
		},
		"restart of all containers": {
			change: func(s *v1.PodSpec) {
				s.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers}}
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := v1.PodSpec{Containers: []v1.Container{{Name: "a", Image: "i"}, {Name: "b", Image: "i"}}, RestartPolicy: v1.RestartPolicyAlways}
			test.change(&spec)
			got := ""
			if err := unsupportedField(&spec, test.have); err != nil {
				got = err.Error()
			}
			if !strings.HasPrefix(got, test.want) || (test.want == "") != (got == "") {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestEphemeral(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{EphemeralContainers: []v1.EphemeralContainer{
		{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "fine", Image: "i", Stdin: true, TTY: true}, TargetContainerName: "a"},
		{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "claim", Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "d"}}}}},
	}}}
	for name, want := range map[string]string{"fine": "", "another": "", "claim": "spec.ephemeralContainers[1].resources.claims: "} {
		got := ""
		if err := Ephemeral(pod, name); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
