package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/credentialprovider"
	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/internal/kubelet/desired"
	"github.com/holdfast-dev/holdfast/internal/kubelet/hoststats"
	"github.com/holdfast-dev/holdfast/internal/kubelet/mirror"
	"github.com/holdfast-dev/holdfast/internal/kubelet/objects"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/pleg"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podadmit"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podcgroup"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfolder"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podsource"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podstatus"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podsync"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podworker"
	"github.com/holdfast-dev/holdfast/internal/kubelet/probehandler"
	"github.com/holdfast-dev/holdfast/internal/kubelet/prober"
	"github.com/holdfast-dev/holdfast/internal/kubelet/pullrecords"
	"github.com/holdfast-dev/holdfast/internal/kubelet/syncloop"
	"github.com/holdfast-dev/holdfast/internal/kubelet/userids"
	"github.com/holdfast-dev/holdfast/internal/version"
)

// The sources of pods.
const (
	sourceFile = "file"
	sourceHTTP = "http"
	sourceAPI  = "api"
)

// sources are those that are to be seen before anything is taken away.
func (k *Kubelet) sources() []string {
	if k.cfg.ManifestURL {
		return []string{sourceFile, sourceHTTP, sourceAPI}
	}
	return []string{sourceFile, sourceAPI}
}

// wire makes every part and tells each whom it talks to. Later parts are
// reached through methods of k, which are called only once Run runs.
func (k *Kubelet) wire() error {
	if err := k.wireHost(); err != nil {
		return err
	}
	if err := k.wireDevices(); err != nil {
		return err
	}
	k.wireCheckpoint()
	k.wireRuntime()
	k.wirePods()
	k.wireShutdown()
	k.wireCollectors()
	if err := k.wireStats(); err != nil {
		return err
	}
	k.wireEviction()
	k.wireSources()
	k.wireMetrics()
	k.wireServer()
	k.wirePodResources()
	return nil
}

// wireHost makes what looks at this machine and tells the API about it.
func (k *Kubelet) wireHost() error {
	log := k.cfg.Log
	if err := os.MkdirAll(k.seccompFolder(), 0o750); err != nil {
		return fmt.Errorf("folder of seccomp profiles: %w", err)
	}
	k.hiddenPaths = hoststats.New(k.cfg.Dir).ThermalThrottle()
	resolvConf := ""
	if k.cfg.ResolvConf != nil {
		resolvConf = *k.cfg.ResolvConf
	}
	k.resolver = hoststats.NewResolver(resolvConf, log.With("part", "hoststats"))
	k.events = newRecorder(cmp.Or(k.cfg.EventClient, k.cfg.Client), k.cfg.NodeName)
	bounds, err := k.bounds()
	if err != nil {
		return err
	}
	k.cgroups, err = podcgroup.New(podcgroup.Config{
		Parent: k.cfg.CgroupParent, NodeMilliCPU: bounds.MilliCPU, AllMemory: bounds.Memory, AllPIDs: bounds.PIDs,
		PidsLimit: k.cfg.PodPidsLimit, Log: log.With("part", "podcgroup"),
	})
	if err != nil {
		return err
	}
	if k.pulls, err = pullrecords.New(k.cfg.Dir, k.cfg.Metrics); err != nil {
		return err
	}
	if single := k.cfg.SingleProcessOOMKill; single != nil && !*single && !k.cgroups.V2() {
		return errors.New("kubelet.singleProcessOOMKill: false needs cgroup v2, which this machine does not have: leave the field out")
	}
	k.folders = podfolder.New(k.cfg.Dir, k.cfg.LogDir)
	k.runtime = cri.New(k.conn, cri.Config{Timeout: k.cfg.RuntimeTimeout, ImageConn: k.imageConn, Log: log.With("part", "cri")})
	k.wireNode()
	return nil
}

// wireRuntime makes what watches the runtime and the objects that pods use.
func (k *Kubelet) wireRuntime() {
	log := k.cfg.Log
	k.cache = observed.NewCache()
	k.pleg = pleg.New(pleg.Config{
		Runtime: k.runtime, Cache: k.cache, Threshold: k.cfg.PLEGThreshold, Log: log.With("part", "pleg"), Registerer: k.cfg.Metrics,
	})
	k.wireCertificates()
	objectsCfg := objects.Config{
		Client: k.cfg.Client, Certificates: k.certificates, Log: log.With("part", "objects"),
		Strategy: k.cfg.ChangeDetection, Age: k.cacheAge, PollClaims: k.cfg.PollClaims,
	}
	if k.checkpoint != nil {
		objectsCfg.Memory = k.checkpoint
	}
	k.objects = objects.New(objectsCfg)
	k.wireVolumes()
	k.objects.Subscribe(func(uid types.UID) {
		k.checkpoint.Poke()
		k.volumes.Poke(uid)
		k.workers.Poke(uid)
	})
}

// wirePods makes what runs pods.
func (k *Kubelet) wirePods() {
	log := k.cfg.Log
	k.probeMetrics = prometheus.NewRegistry()
	k.probes = prober.New(prober.Config{
		Handler: probehandler.New(k.runtime, version.Kubernetes), Statuses: k.cache, Told: toldStatus(k.told), Events: k.events,
		HostIP: k.hostIP, Metrics: k.probeMetrics, Log: log.With("part", "prober"),
	})
	k.statuses = podstatus.New(podstatus.Config{
		Log: log.With("part", "podstatus"), Pods: k.cfg.Client.CoreV1(),
		Terminating:      func(uid types.UID) bool { return k.workers.IsTerminating(uid) },
		CouldHaveRunning: func(uid types.UID) bool { return k.workers.CouldHaveRunning(uid) },
		Probes:           k.probes,
		HostIPs:          k.addresses,
		Devices:          k.devices.Health,
	})
	syncer := podsync.Config{
		Log: log.With("part", "podsync"), Recorder: k.events, Runtime: k.runtime, Volumes: k.volumes,
		Statuses: k.statuses, Cgroups: k.cgroups, Objects: k.objects, Folders: k.folders,
		Devices: k.devices,
		Node:    k.podNode, NetworkReady: k.node.NetworkErr, Probes: k.probes, Services: k.objects.Services,
		ImageCredentials: k.cfg.ImageCredentials, Records: k.pulls, Pulls: k.cfg.ImagePulls, MaxCrashBackoff: k.cfg.MaxRestartPeriod, Metrics: k.cfg.Metrics,
		Users: userids.New(userids.Config{Dir: k.cfg.Dir, PerPod: k.cfg.UserIDsPerPod}),
	}
	if k.checkpoint != nil {
		syncer.Offline = k.checkpoint.Restored
	}
	if k.cfg.CredentialProviders != nil {
		syncer.Providers = credentialprovider.New(credentialprovider.Config{
			Providers: k.cfg.CredentialProviders, Accounts: k.objects, Metrics: k.cfg.Metrics, Log: log.With("part", "credentialprovider"),
		})
	}
	if k.cfg.HostPorts != nil {
		syncer.HostPorts = k.cfg.HostPorts
	}
	k.syncer = podsync.New(syncer)
	k.workers = podworker.New(podworker.Config{
		Log: log.With("part", "podworker"), Syncer: k.syncer, Cache: k.cache, Recorder: k.events,
		Begins: k.pleg.Quiet, Refresh: k.pleg.Poke, RetryAt: k.retryAt, Finished: k.statuses.SetTerminated,
		Metrics: k.cfg.Metrics,
	})
	k.mirrors = mirror.New(mirror.Config{
		Log: log.With("part", "mirror"), Pods: k.cfg.Client.CoreV1(), Node: k.cfg.NodeName, NodeUID: k.nodeUID, Recorder: k.events,
	})
	k.loop = syncloop.New(syncloop.Config{
		Log: log.With("part", "syncloop"), Desired: desired.New(k.sources()...), Workers: k.workers,
		Statuses: k.statuses, Store: k.statuses, Runtime: k.pleg, Mirrors: k.mirrors, Resizes: k.statuses, Recorder: k.events,
		Node:   k.nodeReference(),
		Events: k.pleg.Events(), Ended: k.workers.Ended(), Decided: k.devices.Decided(),
		Admit: k.admit, Sweep: k.sweep, Known: k.workers.Known,
		Published: k.published, Preempted: countPreemptions(k.cfg.Metrics),
	})
}

// wireSources makes what says which pods to run.
func (k *Kubelet) wireSources() {
	static := podsource.StaticConfig{
		Source: sourceFile, Node: k.cfg.NodeName, AllowAPIReferences: k.cfg.AllowAPIReferences, Classes: k.objects, Deliver: k.loop.Deliver, Log: k.cfg.Log.With("part", "podsource"),
	}
	k.files = podsource.NewStatic(static)
	static.Source = sourceHTTP
	k.fromURL = podsource.NewStatic(static)
	k.objects.Subscribe(k.files.ObjectChanged)
	k.objects.Subscribe(k.fromURL.ObjectChanged)
	k.api = podsource.NewAPI(podsource.APIConfig{
		Node: k.cfg.NodeName, Client: k.cfg.Client, Ready: k.node.Registered(), Restore: k.restore(), Deliver: k.loop.Deliver, Log: k.cfg.Log.With("part", "podsource"),
	})
}

// features are what this kubelet and this machine can do.
func features() podadmit.Features {
	return podadmit.Features{Probes: true, ActiveDeadline: true, ReadinessGates: true, AppArmor: hoststats.AppArmor()}
}

// admit asks whether this node takes a pod beside others.
func (k *Kubelet) admit(pod *v1.Pod, others []*v1.Pod) syncloop.Verdict {
	if k.shutdown.Err() != nil {
		return refusedInShutdown()
	}
	if v := k.admitDevices(pod, others); v.Wait || v.Reason != "" {
		return v
	}
	room, refusal := podadmit.AdmitOrPreempt(podadmit.Node{
		Node:     k.nodeFor(pod),
		Features: features(), UnsafeSysctls: k.cfg.UnsafeSysctls,
		Pressure: k.pressure(),
	}, pod, others)
	var v syncloop.Verdict
	if refusal != nil {
		v.Reason, v.Message = refusal.Reason, refusal.Message
	}
	if room != nil {
		v.Preempt, v.Lack = room.End, string(room.Lack)
	}
	return v
}

// sweep removes what is on disk and in cgroups of pods that are not known.
func (k *Kubelet) sweep(ctx context.Context, known func(types.UID) bool) error {
	if err := errors.Join(k.volumes.Sweep(ctx, known), k.folders.SweepLogs(known)); err != nil {
		return err
	}
	return k.cgroups.Sweep(known)
}
