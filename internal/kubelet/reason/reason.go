// Package reason holds the reasons that the API shows: in events, in container
// states and in conditions. They are the upstream kubelet's words where it has
// one for the fact.
package reason

// A Wait says why a container does not run.
type Wait struct {
	Reason  string // one of the constants below
	Message string
}

// Reasons of waiting and terminated containers.
const (
	ContainerCreating          = "ContainerCreating"
	PodInitializing            = "PodInitializing"
	CrashLoopBackOff           = "CrashLoopBackOff"
	ErrImagePull               = "ErrImagePull"
	ImagePullBackOff           = "ImagePullBackOff"
	ErrImageNeverPull          = "ErrImageNeverPull"
	InvalidImageName           = "InvalidImageName"
	ImageInspectError          = "ImageInspectError"
	RegistryUnavailable        = "RegistryUnavailable"
	SignatureValidationFailed  = "SignatureValidationFailed"
	CreateContainerConfigError = "CreateContainerConfigError"
	CreateContainerError       = "CreateContainerError"
	PostStartHookError         = "PostStartHookError"
	RunContainerError          = "RunContainerError"
	ContainerStatusUnknown     = "ContainerStatusUnknown"
	Completed                  = "Completed"
	Error                      = "Error"
	OOMKilled                  = "OOMKilled"
	RestartingAllContainers    = "RestartingAllContainers"
)

// Evicted is the reason of a pod that was ended, or not taken, because the node
// has too little of a resource, and of the event that tells of it.
const Evicted = "Evicted"

// Reasons of other pods that the node ended or did not take.
const (
	Terminated = "Terminated" // the machine goes down
	Preempting = "Preempting" // a critical pod needs the room; of the event, too

	DeadlineExceeded         = "DeadlineExceeded"         // its activeDeadlineSeconds are over; of the event, too
	UnexpectedAdmissionError = "UnexpectedAdmissionError" // no room can be made for a critical pod, or no devices allocated
)

// Reasons of events.
const (
	Created                          = "Created"
	Started                          = "Started"
	Failed                           = "Failed"
	Killing                          = "Killing"
	BackOff                          = "BackOff"
	Pulling                          = "Pulling"
	Pulled                           = "Pulled"
	InspectFailed                    = "InspectFailed"
	FailedToRetrieveImagePullSecret  = "FailedToRetrieveImagePullSecret"
	VolumePermissionChangeInProgress = "VolumePermissionChangeInProgress"
	FailedMount                      = "FailedMount"
	FailedSync                       = "FailedSync"
	FailedCreatePodSandBox           = "FailedCreatePodSandBox"
	FailedPodSandBoxStatus           = "FailedPodSandBoxStatus"
	HostPortConflict                 = "HostPortConflict" // ours
	FailedKillPod                    = "FailedKillPod"
	FailedToCreatePodContainer       = "FailedCreatePodContainer"
	SandboxChanged                   = "SandboxChanged"
	NetworkNotReady                  = "NetworkNotReady"
	MissingClusterDNS                = "MissingClusterDNS"
	DNSConfigForming                 = "DNSConfigForming"
	FailedValidation                 = "FailedValidation"
	FailedPostStartHook              = "FailedPostStartHook"
	FailedPreStopHook                = "FailedPreStopHook"
	LifecycleHTTPFallback            = "LifecycleHTTPFallback"
	Unhealthy                        = "Unhealthy"
	ProbeWarning                     = "ProbeWarning"
	NodeReady                        = "NodeReady"
	NodeNotReady                     = "NodeNotReady"
	Starting                         = "Starting"
	ContainerGCFailed                = "ContainerGCFailed"
	ImageGCFailed                    = "ImageGCFailed"
	InvalidDiskCapacity              = "InvalidDiskCapacity"
	FreeDiskSpaceFailed              = "FreeDiskSpaceFailed"
	EvictionThresholdMet             = "EvictionThresholdMet"
	NodeShutdown                     = "NodeShutdown"
	ResizeStarted                    = "ResizeStarted"
	ResizeDeferred                   = "ResizeDeferred"
	ResizeCompleted                  = "ResizeCompleted"
	ResizeError                      = "ResizeError"
)

// Reasons of events about what upstream's kubelet has no word for.
const (
	UnsupportedField = "UnsupportedField" // a pod asks for what this version cannot do
	WaitingForPod    = "WaitingForPod"    // a static pod starts after another
	FailedMirrorPod  = "FailedMirrorPod"  // a static pod is not shown in the API; upstream only logs it
)

// Reasons of events about volumes that are to grow.
const (
	FileSystemResizeSuccessful = "FileSystemResizeSuccessful"
	VolumeResizeFailed         = "VolumeResizeFailed"
)

// VolumeConditionAbnormal is the reason of an event about a volume with which
// something is wrong, as its driver says.
const VolumeConditionAbnormal = "VolumeConditionAbnormal"
