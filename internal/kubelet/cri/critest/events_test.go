package critest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtimelabels"
)

func testEvents(t *testing.T, s subject) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if !s.events {
		err := s.Events(ctx, func(*runtimeapi.ContainerEventResponse) {})
		if !errors.Is(err, observed.ErrNoEvents) {
			t.Errorf("events: %v, want none", err)
		}
		return
	}
	events := make(chan *runtimeapi.ContainerEventResponse, 1000)
	ended := make(chan error, 1)
	go func() { ended <- s.Events(ctx, func(e *runtimeapi.ContainerEventResponse) { events <- e }) }()
	// The stream does not say when it begins: pods come and go until one is heard.
	heard := map[string][]string{}
	note := func(e *runtimeapi.ContainerEventResponse) {
		heard[e.GetContainerId()] = append(heard[e.GetContainerId()], e.GetContainerEventType().String())
	}
	for len(heard) == 0 {
		newPod(t, s, func(c *runtimeapi.PodSandboxConfig) { c.Metadata.Attempt = uint32(time.Now().UnixMicro()) }) //nolint:gosec // any number
		select {
		case e := <-events:
			note(e)
		case <-time.After(100 * time.Millisecond):
		}
	}
	p := newPod(t, s, func(c *runtimeapi.PodSandboxConfig) { c.Metadata.Attempt = uint32(time.Now().UnixMicro()) }) //nolint:gosec // any number
	id := p.start("exits7")
	p.ended(id)
	if err := s.RemoveContainer(ctx, id); err != nil {
		t.Fatal(err)
	}
	for !slices.Contains(heard[id], "CONTAINER_DELETED_EVENT") {
		e := <-events
		note(e)
		if e.GetContainerId() == id && e.GetPodSandboxStatus().GetLabels()[runtimelabels.PodUID] != string(p.uid) {
			t.Errorf("event does not name its pod: %v", e)
		}
	}
	want := []string{"CONTAINER_CREATED_EVENT", "CONTAINER_STARTED_EVENT", "CONTAINER_STOPPED_EVENT", "CONTAINER_DELETED_EVENT"}
	slices.Sort(heard[id]) // a short life's events may overtake each other
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Compact(heard[id])); diff != "" {
		t.Errorf("events of a container (-want +got):\n%s", diff)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("events ended with %v", err)
	}
}
