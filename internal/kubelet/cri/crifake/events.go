package crifake

import (
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A feed hands container events to the open streams.
type feed struct {
	mu      sync.Mutex // guards the fields below
	on      bool
	muted   bool
	streams []*subscription
}

type subscription struct {
	events chan *runtimeapi.ContainerEventResponse // full: dropped, as real runtimes do
	off    chan struct{}                           // closed by SetEvents(false)
}

// SetEvents says whether the runtime has a stream of container events. It has
// at first. Without, open streams end and new ones are unimplemented.
func (f *Fake) SetEvents(on bool) {
	f.feed.mu.Lock()
	defer f.feed.mu.Unlock()
	f.feed.on = on
	if !on {
		for _, s := range f.feed.streams {
			close(s.off)
		}
		f.feed.streams = nil
	}
}

// MuteEvents makes the streams silent, as with a runtime that forgets to tell.
func (f *Fake) MuteEvents(muted bool) {
	f.feed.mu.Lock()
	defer f.feed.mu.Unlock()
	f.feed.muted = muted
}

// Emit sends an event of the test's making on every open stream.
func (f *Fake) Emit(event *runtimeapi.ContainerEventResponse) {
	f.feed.mu.Lock()
	defer f.feed.mu.Unlock()
	f.feed.sendLocked(event)
}

// EventStreams returns how many streams are open.
func (f *Fake) EventStreams() int {
	f.feed.mu.Lock()
	defer f.feed.mu.Unlock()
	return len(f.feed.streams)
}

func (f *feed) sendLocked(event *runtimeapi.ContainerEventResponse) {
	for _, s := range f.streams {
		select {
		case s.events <- event:
		default:
		}
	}
}

// tellLocked sends an event of a sandbox or container, with what is then known
// of its pod. f.mu is held.
func (f *Fake) tellLocked(kind runtimeapi.ContainerEventType, id, sandboxID string) {
	f.feed.mu.Lock()
	defer f.feed.mu.Unlock()
	if f.feed.muted || len(f.feed.streams) == 0 {
		return
	}
	event := &runtimeapi.ContainerEventResponse{
		ContainerId:        id,
		ContainerEventType: kind,
		CreatedAt:          f.nowLocked().UnixNano(),
	}
	if s := f.sandboxes[sandboxID]; s != nil {
		event.PodSandboxStatus = s.statusLocked()
		for _, c := range f.containersOfLocked(sandboxID) {
			event.ContainersStatuses = append(event.ContainersStatuses, c.statusLocked())
		}
	}
	f.feed.sendLocked(event)
}

func (f *feed) subscribe() (*subscription, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.on {
		return nil, false
	}
	s := &subscription{
		events: make(chan *runtimeapi.ContainerEventResponse, 1000), // as containerd
		off:    make(chan struct{}),
	}
	f.streams = append(f.streams, s)
	return s, true
}

func (f *feed) unsubscribe(s *subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams = slices.DeleteFunc(f.streams, func(other *subscription) bool { return other == s })
}

func (s *runtimeService) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	sub, ok := s.fake.feed.subscribe()
	if !ok {
		return status.Error(codes.Unimplemented, "no event stream")
	}
	defer s.fake.feed.unsubscribe(sub)
	for {
		select {
		case event := <-sub.events:
			if err := stream.Send(event); err != nil {
				return err
			}
		case <-sub.off:
			return nil
		case <-stream.Context().Done():
			return nil
		}
	}
}
