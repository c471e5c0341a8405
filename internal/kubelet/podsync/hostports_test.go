package podsync

import (
	"context"
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ports is a host with neighbours.
type ports struct {
	listeners      []string
	check, confirm error
	asked          int
}

func (p *ports) Check(_ context.Context, wanted []*runtimeapi.PortMapping) ([]string, error) {
	p.asked += len(wanted)
	return p.listeners, p.check
}

func (p *ports) Confirm(_ context.Context, id string, _ []*runtimeapi.PortMapping) error {
	if id == "" {
		return errors.New("no sandbox")
	}
	return p.confirm
}

func TestHostPorts(t *testing.T) {
	taken := errors.New("host TCP port 80 is taken")
	for name, test := range map[string]struct {
		host                ports
		hostNetwork         bool
		wantErr             error
		wantEvent           string
		wantMade, wantAsked int
	}{
		"free":           {wantMade: 1, wantAsked: 1},
		"taken":          {host: ports{check: taken}, wantErr: taken, wantEvent: "FailedCreatePodSandBox", wantAsked: 1},
		"lost in a race": {host: ports{confirm: taken}, wantErr: taken, wantEvent: "FailedCreatePodSandBox", wantMade: 1, wantAsked: 1},
		"listened on":    {host: ports{listeners: []string{"sshd listens"}}, wantEvent: "Warning HostPortConflict sshd listens", wantMade: 1, wantAsked: 1},
		"host network":   {hostNetwork: true, wantMade: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.HostPorts = &test.host })
			w.pod.Spec.HostNetwork = test.hostNetwork
			w.pod.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 8080, HostPort: 80}}
			_, err := w.SyncPod(t.Context(), w.pod, nil, w.inspect())
			if !errors.Is(err, test.wantErr) {
				t.Errorf("got %v, want %v", err, test.wantErr)
			}
			if got := len(w.inspect().Sandboxes); got != test.wantMade || test.host.asked != test.wantAsked {
				t.Errorf("%d sandboxes for %d ports, want %d for %d", got, test.host.asked, test.wantMade, test.wantAsked)
			}
			if test.wantErr != nil && test.wantMade > 0 {
				if s := w.inspect().Sandboxes[0]; s.State == runtimeapi.PodSandboxState_SANDBOX_READY {
					t.Error("the sandbox that lost its port runs")
				}
			}
			events := strings.Join(w.eventsSoFar(), "\n")
			if !strings.Contains(events, test.wantEvent) {
				t.Errorf("no %q in:\n%s", test.wantEvent, events)
			}
		})
	}
}
