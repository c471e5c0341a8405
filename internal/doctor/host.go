package doctor

import (
	"context"
	"os"
	"strings"
	"time"
)

// A Host is what was read of a machine. What could not be read has its zero
// value, which Judge takes for "not known" wherever it could mislead.
type Host struct {
	Config

	EUID         int
	Capabilities uint64 // effective, as in /proc/PID/status
	Programs     []Program
	Runtime      Endpoint // of Config.Endpoint

	Cgroups Cgroups
	Memory  int64 // bytes
	Swap    int64 // bytes

	Now      time.Time
	Unsynced bool // no time service keeps the clock right

	Disk  Disk
	Ports []Port

	Forwarding    string // /proc/sys/net/ipv4/ip_forward
	Iptables      Program
	ForwardPolicy string   // of the chain FORWARD: ACCEPT or DROP
	Neighbours    []string // programs that run here and may share ports or rules: "dockerd (PID 12)"

	Filesystems    string // /proc/filesystems
	Modules        string // every module that the kernel has built in or can load
	Seccomp        bool
	AppArmor       bool
	UserNamespaces int64 // how many may exist
	InotifyWatches int64
	InotifyUsers   int64 // instances a user
	PIDs           int64 // the largest
	OpenFiles      uint64
	Nameservers    []string
}

// A Program is a program that a node needs.
type Program struct {
	Name    string
	Path    string
	Version string // its first line, where it was asked
	Err     error  // it is not there, or does not run
}

// An Endpoint is the answer of a container runtime.
type Endpoint struct {
	Name, Version, API string
	Err                error
}

// Cgroups are the controllers of both hierarchies.
type Cgroups struct {
	V1, V2    []string // controllers
	V2Only    bool     // /sys/fs/cgroup is the unified hierarchy
	V2Mounted bool     // anywhere
	Known     bool
}

// A Disk is the filesystem of the node's folder.
type Disk struct {
	Path       string // the folder, or the nearest one above it that exists
	Type       string
	Free       int64 // bytes, for the superuser
	FreeFiles  int64 // inodes; -1 where the filesystem has no bound
	ReadOnly   bool
	NoExec     bool
	NoSUID     bool
	NoDev      bool
	Err        error
	Persistent bool // survives a reboot
}

// A Port is a port that the node wants.
type Port struct {
	Name   string // of the flag that sets it
	Number int
	Owner  string // who listens there: "nginx (PID 12)"; empty if nobody does
	Ours   bool   // it is the node itself
}

// Read reads the machine. ctx bounds how long it waits for programs and for a
// runtime, each of which it gives five seconds at most.
func Read(ctx context.Context, cfg Config, now time.Time) Host {
	h := Host{Config: cfg, EUID: os.Geteuid(), Now: now}
	h.Capabilities = capabilities(text("/proc/self/status"))
	if cfg.Endpoint == "" {
		h.Programs = runtimePrograms(ctx, cfg.RuntimeDir, cfg.Programs)
	} else {
		h.Runtime = askRuntime(ctx, cfg.Endpoint)
	}
	h.Cgroups = cgroups(text("/proc/self/mountinfo"), text("/proc/cgroups"), text("/sys/fs/cgroup/cgroup.controllers"))
	h.Memory, h.Swap = memory(text("/proc/meminfo"))
	h.Unsynced = unsynced()
	h.Disk = disk(cfg.Root)
	listeners := listening()
	for _, p := range []Port{{Name: "--api-port", Number: cfg.APIPort}, {Name: "--kubelet-port", Number: cfg.KubeletPort}} {
		if p.Number == 0 {
			continue
		}
		if pid, taken := listeners[p.Number]; taken {
			p.Owner, p.Ours = describe(pid), pid != 0 && pid == cfg.NodePID
		}
		h.Ports = append(h.Ports, p)
	}
	h.Forwarding = strings.TrimSpace(text("/proc/sys/net/ipv4/ip_forward"))
	h.Iptables, h.ForwardPolicy = firewall(ctx)
	h.Neighbours = neighbours(cfg.Root)
	h.Filesystems = text("/proc/filesystems")
	h.Modules = modules()
	h.Seccomp = text("/proc/sys/kernel/seccomp/actions_avail") != ""
	h.AppArmor = strings.HasPrefix(text("/sys/module/apparmor/parameters/enabled"), "Y")
	h.UserNamespaces = number("/proc/sys/user/max_user_namespaces")
	h.InotifyWatches = number("/proc/sys/fs/inotify/max_user_watches")
	h.InotifyUsers = number("/proc/sys/fs/inotify/max_user_instances")
	h.PIDs = number("/proc/sys/kernel/pid_max")
	h.OpenFiles = openFiles()
	h.Nameservers = nameservers(text("/etc/resolv.conf"))
	return h
}
