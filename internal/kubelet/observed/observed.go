// Package observed holds what the container runtime reports: the short list of
// every pod, the inspection of one pod, and the status cache that keeps the
// last inspection of each.
//
// Values are snapshots: whoever made one does not change it afterwards, so any
// goroutine may read it. The one writer of the cache is package pleg; any
// goroutine may read it or wait in it.
//
// Moments are compared by their monotonic clock reading, so they come from
// time.Now of this process and a stepped wall clock changes nothing.
package observed

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A State is the state of a sandbox or container. A ready sandbox is Running,
// any other sandbox is Exited.
type State string

// The states that the runtime reports.
const (
	Created State = "created"
	Running State = "running"
	Exited  State = "exited"
	Unknown State = "unknown"
)

// A Pod is what a relist tells of one pod: which sandboxes and containers the
// runtime has for it. It comes from labels, so it may name a pod that nobody
// wants any more.
type Pod struct {
	UID        types.UID
	Name       string
	Namespace  string
	Source     string      // where the pod came from when its sandbox was made; empty: not known
	Sandboxes  []Sandbox   // newest first, by attempt
	Containers []Container // of each name, newest first
}

// A Sandbox is one sandbox of a Pod.
type Sandbox struct {
	ID        string // the runtime's own, without scheme
	Attempt   uint32
	State     State
	CreatedAt time.Time
}

// A Container is one container of a Pod.
type Container struct {
	ID        string // the runtime's own, without scheme
	Name      string
	SandboxID string
	Attempt   uint32
	State     State
	CreatedAt time.Time
}

// A Status is the inspection of one pod.
type Status struct {
	UID        types.UID
	Name       string
	Namespace  string
	IPs        []string                       // of the newest ready sandbox; the first is the primary
	Sandboxes  []*runtimeapi.PodSandboxStatus // newest first, by attempt
	Containers []ContainerStatus              // of each name, newest first
	Time       time.Time                      // when the runtime was asked
}

// A ContainerStatus is the inspection of one container.
type ContainerStatus struct {
	ID           string // the runtime's own, without scheme
	Name         string
	SandboxID    string
	State        State
	CreatedAt    time.Time
	StartedAt    time.Time // zero: not started
	FinishedAt   time.Time // zero: not ended
	ExitCode     int32
	Reason       string // the runtime's word, such as OOMKilled
	Message      string // the termination message, read from its file or log
	Image        string // as the pod names it
	ImageID      string // the digested reference in use: what the API shows as imageID
	ImageRef     string // the runtime's own name of the image on this machine; empty with runtimes before containerd 2
	Hash         string // of the container's specification, as labelled when it was created
	RestartCount int32
	Grace        *time.Duration // what its pod gave it to end when it was created; nil: not known
	LogPath      string
	Resources    *runtimeapi.ContainerResources
	MemoryAsked  *int64 // bytes that it requested when it was created; nil: not known
	User         *runtimeapi.ContainerUser
	Mounts       []*runtimeapi.Mount
	StopSignal   runtimeapi.Signal // that asks it to end; zero: the runtime does not tell
}

// Container returns the newest container called name, or nil.
func (s *Status) Container(name string) *ContainerStatus {
	if s == nil {
		return nil
	}
	for i := range s.Containers {
		if s.Containers[i].Name == name {
			return &s.Containers[i]
		}
	}
	return nil
}

// ReadySandbox returns the newest sandbox if it is ready, or nil.
func (s *Status) ReadySandbox() *runtimeapi.PodSandboxStatus {
	if s == nil || len(s.Sandboxes) == 0 || s.Sandboxes[0].GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		return nil
	}
	return s.Sandboxes[0]
}

// Running reports whether any container or sandbox of the pod still runs.
func (s *Status) Running() bool {
	if s == nil {
		return false
	}
	for i := range s.Containers {
		if s.Containers[i].State == Running {
			return true
		}
	}
	for _, sandbox := range s.Sandboxes {
		if sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			return true
		}
	}
	return false
}
