package runtimehost

import (
	"strings"
	"testing"
)

func TestCheckHandlers(t *testing.T) {
	crun := Handler{Name: "crun", Binary: "/usr/bin/crun"}
	tests := map[string]struct {
		handlers []Handler
		want     []string // parts of the error; none: there is none
	}{
		"none": {},
		"good": {handlers: []Handler{
			crun,
			{Name: "gvisor", Shim: "/usr/local/bin/containerd-shim-runsc-v1", ShimConfig: "/etc/containerd/runsc.toml"},
			{Name: "kata", Shim: "/opt/kata/bin/containerd-shim-kata-qemu-v2"},
		}},
		"twice":           {handlers: []Handler{crun, crun}, want: []string{`runtimeHandlers[1]: name: "crun" is there twice`}},
		"no name":         {handlers: []Handler{{Binary: "/usr/bin/crun"}}, want: []string{"runtimeHandlers[0]: name: "}},
		"name of no form": {handlers: []Handler{{Name: "io.x", Binary: "/usr/bin/crun"}}, want: []string{"runtimeHandlers[0]: name: "}},
		"ours":            {handlers: []Handler{{Name: "runc", Binary: "/usr/bin/runc"}}, want: []string{"is the bundled one"}},
		"no program":      {handlers: []Handler{{Name: "a"}}, want: []string{"write either binary"}},
		"two programs":    {handlers: []Handler{{Name: "a", Binary: "/b", Shim: "/containerd-shim-a-v1"}}, want: []string{"write either binary"}},
		"relative": {
			handlers: []Handler{{Name: "a", Binary: "crun"}, {Name: "b", Shim: "/x/../containerd-shim-b-v1", ShimConfig: "b.toml"}},
			want: []string{
				`runtimeHandlers[0]: binary: "crun" is no absolute path`, `runtimeHandlers[1]: shim: "/x/../containerd-shim-b-v1" is no absolute path`,
				`runtimeHandlers[1]: shimConfig: "b.toml" is no absolute path`,
			},
		},
		"config of a binary": {handlers: []Handler{{Name: "a", Binary: "/a", ShimConfig: "/a.toml"}}, want: []string{"it is for a shim"}},
		"shim of no name":    {handlers: []Handler{{Name: "a", Shim: "/usr/bin/runsc"}, {Name: "b", Shim: "/containerd-shim-b"}}, want: []string{`"/usr/bin/runsc" is not called`, `"/containerd-shim-b" is not called`}},
		"runc's shim":        {handlers: []Handler{{Name: "a", Shim: "/usr/bin/containerd-shim-runc-v2"}}, want: []string{"is bundled"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := CheckHandlers("runtimeHandlers", test.handlers)
			if (err == nil) != (len(test.want) == 0) {
				t.Fatalf("got %v, want %q", err, test.want)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("no %q in:\n%v", part, err)
				}
			}
		})
	}
}
