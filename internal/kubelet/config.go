package kubelet

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/credentialconfig"
	"github.com/holdfast-dev/holdfast/internal/kubelet/eviction"
	"github.com/holdfast-dev/holdfast/internal/kubelet/imagegc"
	"github.com/holdfast-dev/holdfast/internal/kubelet/logrotate"
	"github.com/holdfast-dev/holdfast/internal/kubelet/nodeshutdown"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podsync"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reservation"
	"github.com/holdfast-dev/holdfast/internal/kubelet/server"
	"github.com/holdfast-dev/holdfast/internal/podnet"
)

// A Config says which node this is and what it works with. Everything is
// required but what says otherwise.
type Config struct {
	NodeName string
	// Addresses are the node's own, the primary one first. None: they are found by
	// what Node says.
	Addresses []netip.Addr
	// Node is how the Node object is made and kept. Zero: as by upstream's defaults.
	Node NodeSettings

	// Dir holds pods' volumes and files, and in its folder seccomp, which New
	// makes, the profiles that pods name by localhostProfile. Absolute, exists.
	Dir    string
	LogDir string // logs of all pods; absolute, exists

	RuntimeEndpoint string        // of a CRI v1 runtime: unix:///path
	RuntimeTimeout  time.Duration // of its calls; default: 2m
	ImageEndpoint   string        // of its image service; empty: the runtime is one
	// SingleProcessOOMKill is upstream's field of that name. Nil: all processes of
	// a container end, where cgroup v2 can do that. False needs cgroup v2.
	SingleProcessOOMKill *bool

	// Reservation is what of the machine is kept from pods. Nil: nothing, and pods
	// together have no limit.
	Reservation *reservation.Reservation

	CgroupParent string // above all pods, such as /holdfast-ab12cd

	// HostPorts knows who else has ports of the host. Nil: the runtime's network
	// is not ours, and nobody is asked.
	HostPorts *podnet.HostPorts

	Client kubernetes.Interface // with the kubelet's credentials
	// EventClient sends events, which then do not use up what Client may send in a
	// second: upstream's kubelet limits them apart, too. Default: Client.
	EventClient kubernetes.Interface
	// ServiceHost and ServicePort are where pods reach the API. Empty: the
	// service "kubernetes" of the API.
	ServiceHost, ServicePort string
	// ClusterDNS are the servers that pods with the policy ClusterFirst ask, and
	// ClusterDomain is the cluster's. Empty: there are none.
	ClusterDNS    []string
	ClusterDomain string
	// ResolvConf is the file with the resolver settings that pods get from the node.
	// Nil: the machine's; empty: pods ask nobody, as resolvConf: "" has it.
	ResolvConf *string
	// ChangeDetection is how changes of ConfigMaps and Secrets are found. Default:
	// Watch.
	ChangeDetection kubeletconfig.ResourceChangeDetectionStrategy
	// PollClaims is for an API whose node authorizer lets nobody watch claims.
	PollClaims bool
	// AllowAPIReferences lets static pods refer to objects of the API.
	AllowAPIReferences bool
	// ManifestURL is whether there is a source "http": SetURLManifests will be
	// called. Until it is, nothing that runs is taken for unwanted.
	ManifestURL bool

	PLEGThreshold time.Duration // age of the last good list of pods at which the node is not ready; default: 3m
	// Checkpoint says where the pods of the API are kept for a start without it.
	// Nil: they are not. The API of a node that serves its own is always there.
	Checkpoint *Checkpoint

	LeaseDuration time.Duration // of the node's lease, renewed at a quarter; default: 40s

	Listeners      []net.Listener // of the kubelet's API; closed by Run
	HealthListener net.Listener   // of /healthz without credentials; closed by Run. Nil: none
	// ReadOnlyListeners serve what upstream's read-only port does, without TLS or
	// credentials; closed by Run. None: nobody is served so.
	ReadOnlyListeners []net.Listener
	// API says whom the kubelet's API lets in and what it shows; server.PolicyOf makes
	// it of a KubeletConfiguration. Zero: upstream's defaults.
	API         server.Policy
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// TLS holds the versions, cipher suites and key exchanges that are agreed to.
	// Nil: TLS 1.2 and later, as Go chooses.
	TLS       *tls.Config
	ClientCAs func() *x509.CertPool // asked for at each handshake and request

	// Shutdown is how long pods get, by priority, when the machine goes down. None:
	// nothing is known of that. ShutdownName tells several kubelets apart in what is
	// written for logind.
	Shutdown     []nodeshutdown.Period
	ShutdownName string

	ImageGC     imagegc.Policy   // which images go; zero: upstream's defaults
	LogRotation logrotate.Policy // of containers' logs; zero: upstream's defaults
	// Eviction says when the node has too little memory, disk or process
	// identifiers. Zero: it never has; upstream's is eviction.DefaultPolicy.
	Eviction eviction.Policy
	// PressureTaints keeps new pods from a node that has pressure, by taints. It is
	// for a node without a node lifecycle controller.
	PressureTaints bool
	// VolumeStatsPeriod is the time from one measurement of a volume to the next. Zero:
	// 1m; negative: volumes are not measured.
	VolumeStatsPeriod time.Duration
	PodPidsLimit      int64 // processes and threads of one pod; 0 or less: no limit
	// NoCPUQuota leaves limits of CPU unenforced. CPUPeriod is that over which they
	// count. Default: 100ms.
	NoCPUQuota bool
	CPUPeriod  time.Duration

	ImagePulls podsync.Pulls // how images are pulled; zero: upstream's defaults
	// MaxRestartPeriod is the longest pause before a container that crashed starts
	// again. Default: 5m.
	MaxRestartPeriod time.Duration
	// UserIDsPerPod is how many user IDs a pod with a user namespace gets, a
	// multiple of 65536. Zero: 65536.
	UserIDsPerPod uint32
	// SeccompDefault gives the runtime's profile to containers that name none.
	SeccompDefault bool
	// UnsafeSysctls are kernel settings that pods may have beside the safe ones;
	// an ending * stands for any.
	UnsafeSysctls []string

	// ImageCredentials returns the node's own pull secrets, used after a pod's.
	// Nil: it has none.
	ImageCredentials func() ([]*v1.Secret, error)
	// CredentialProviders are the programs that are asked for credentials after
	// that. Nil: there are none.
	CredentialProviders *credentialconfig.Config

	// Configuration is what /configz shows. Nil: there is no /configz.
	Configuration *kubeletconfig.KubeletConfiguration
	// Flags are what /flagz shows, by name. Nil: there is no /flagz.
	Flags map[string]string
	// SetVerbosity changes what is logged, to a number as of the flag --v, for
	// /debug/flags/v; its error says what is wrong. Nil: there is no such path.
	SetVerbosity func(level string) error

	Metrics *prometheus.Registry // /metrics shows it
	Log     *slog.Logger
}
