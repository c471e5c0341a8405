package podsync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podadmit"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// containerConfig gathers what a container's configuration is made of.
func (r *run) containerConfig(ctx context.Context, st start, image pulled) (*runtimeapi.ContainerConfig, error) {
	c := st.container
	if err := podadmit.Ephemeral(r.pod, c.Name); err != nil {
		return nil, err
	}
	target, err := r.target(st)
	if err != nil {
		return nil, err
	}
	env, err := r.env(ctx, c)
	if err != nil {
		return nil, err
	}
	attempt := r.attempt(st)
	mounts, err := r.mounts(ctx, c, env, attempt)
	if err != nil {
		return nil, err
	}
	devices, err := r.devices(c)
	if err != nil {
		return nil, err
	}
	given, err := r.s.cfg.Devices.Container(ctx, r.pod, c)
	if err != nil {
		return nil, err
	}
	if err := r.s.cfg.Folders.MakeLogs(r.pod.Namespace, r.pod.Name, r.pod.UID, c.Name); err != nil {
		return nil, err
	}
	return r.node.Container(podfiles.ContainerInput{
		Pod: r.pod, Container: c, Attempt: attempt,
		ImageRef: image.ref, ImageUser: image.user,
		Env: env, Mounts: mounts, Devices: devices, Given: given, TargetID: target, Users: r.users,
	})
}

// attempt returns how often the container was restarted, with this time. One
// that was created and never ran does not count.
func (r *run) attempt(st start) int32 {
	if st.previous != nil {
		if st.previous.State == observed.Created {
			return st.previous.RestartCount
		}
		return st.previous.RestartCount + 1
	}
	// A runtime may forget containers, at a reboot for example; their logs
	// remember how many there were, and must not be written over.
	if last, ok := r.s.cfg.Folders.LastAttempt(r.pod.Namespace, r.pod.Name, r.pod.UID, st.container.Name); ok {
		return last + 1
	}
	return 0
}

// target returns the ID of the container whose processes an ephemeral one sees.
func (r *run) target(st start) (string, error) {
	if st.target == "" {
		return "", nil
	}
	c := r.status.Container(st.target)
	if c == nil {
		return "", fmt.Errorf("unable to find target container %v", st.target)
	}
	return c.ID, nil
}

func (r *run) env(ctx context.Context, c *v1.Container) ([]podfiles.Var, error) {
	var services []*v1.Service
	if r.node.WantsServices(r.pod) {
		var err error
		services, err = r.s.cfg.Services(ctx, r.pod.Namespace)
		if err != nil {
			return nil, fmt.Errorf("services have not been read, cannot construct envvars: %w", err)
		}
	}
	return r.node.Env(r.pod, c, podfiles.EnvSources{
		PodIPs:   r.ips(),
		Services: services,
		ConfigMap: func(name string) (*v1.ConfigMap, error) {
			return r.s.cfg.Objects.GetConfigMap(ctx, r.pod.Namespace, name)
		},
		Secret: func(name string) (*v1.Secret, error) {
			return r.s.cfg.Objects.GetSecret(ctx, r.pod.Namespace, name)
		},
		File: r.envFile,
	})
}

// envFile reads a file of variables. The details of a failure stay in the log:
// they could tell a pod's owner about the node's files.
func (r *run) envFile(volume, path string) ([]byte, error) {
	dir, ok := r.s.cfg.Volumes.Paths(r.pod.UID)[volume]
	if !ok {
		return nil, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", volume)
	}
	content, err := r.s.cfg.Folders.ReadIn(dir, path, podfiles.MaxEnvFile)
	switch {
	case err == nil:
		return content, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("env file %q of volume %q: %w", path, volume, fs.ErrNotExist)
	}
	r.s.log.Warn("file of variables cannot be read", "pod", r.name(), "volume", volume, "err", err)
	return nil, fmt.Errorf("couldn't read env file %q of volume %q", path, volume)
}

// mounts returns the container's mounts: its volumes, the hosts file and the
// termination message.
func (r *run) mounts(ctx context.Context, c *v1.Container, env []podfiles.Var, attempt int32) ([]*runtimeapi.Mount, error) {
	paths := r.s.cfg.Volumes.Paths(r.pod.UID)
	var out []*runtimeapi.Mount
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		image := r.imageVolumes[m.Name].spec
		path, ok := paths[m.Name]
		if !ok && image == nil {
			return nil, fmt.Errorf("cannot find volume %q to mount into container %q", m.Name, c.Name)
		}
		sub, err := podfiles.SubPath(m, env)
		if err != nil {
			return nil, err
		}
		if sub != "" && image == nil {
			path, err = r.subPath(ctx, c, i, sub)
			if err != nil {
				return nil, err
			}
		}
		recursive, err := r.recursiveReadOnly(ctx, m)
		if err != nil {
			return nil, err
		}
		mount := podfiles.VolumeMount(r.pod, m, path, recursive)
		mount.Readonly = mount.Readonly || r.s.cfg.Volumes.ReadOnly(r.pod.UID, m.Name)
		if image != nil {
			mount.Image, mount.ImageSubPath = image, sub
		}
		out = append(out, mount)
	}
	if podfiles.WantsHosts(r.pod, c, r.status.IPs) {
		path, err := r.hosts()
		if err != nil {
			return nil, err
		}
		out = append(out, podfiles.HostsMount(path))
	}
	if c.TerminationMessagePath != "" {
		path, err := r.s.cfg.Folders.TerminationLog(r.pod.UID, c.Name, attempt)
		if err != nil {
			return nil, err
		}
		out = append(out, podfiles.TerminationMount(c, path))
	}
	return out, nil
}

// devices returns the container's block volumes.
func (r *run) devices(c *v1.Container) ([]*runtimeapi.Device, error) {
	if len(c.VolumeDevices) == 0 {
		return nil, nil
	}
	there := r.s.cfg.Volumes.Devices(r.pod.UID)
	var out []*runtimeapi.Device
	for i := range c.VolumeDevices {
		d := &c.VolumeDevices[i]
		device, ok := there[d.Name]
		if !ok {
			return nil, fmt.Errorf("cannot find volume %q to pass into container %q", d.Name, c.Name)
		}
		out = append(out, podfiles.VolumeDevice(d, device.Path, device.ReadOnly))
	}
	return out, nil
}

func (r *run) recursiveReadOnly(ctx context.Context, m *v1.VolumeMount) (bool, error) {
	if m.RecursiveReadOnly == nil {
		return false, nil
	}
	handler, err := r.handler(ctx)
	if err != nil {
		return false, err
	}
	return podfiles.RecursiveReadOnly(m, r.node.ReadsOnlyRecursively(handler))
}

// subPath makes a part of a volume ready to be mounted. The details of a failure
// stay in the log: they could tell a pod's owner about the node's files.
func (r *run) subPath(ctx context.Context, c *v1.Container, index int, sub string) (string, error) {
	name := c.VolumeMounts[index].Name
	ctx, cancel := context.WithTimeout(ctx, r.s.cfg.MountWait) // the volume may hang
	defer cancel()
	path, err := r.s.cfg.Volumes.SubPath(ctx, podvolumes.SubPath{PodUID: r.pod.UID, Volume: name, Path: sub, Container: c.Name, Index: index})
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			r.s.log.Warn("subPath cannot be prepared", "pod", r.name(), "container", c.Name, "volume", name, "err", err)
		}
		return "", fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q", name, c.Name)
	}
	return path, nil
}

func (r *run) hosts() (string, error) {
	content, err := r.hostsContent()
	if err != nil {
		return "", err
	}
	return r.s.cfg.Folders.WriteHosts(r.pod.UID, content)
}

func (r *run) hostsContent() ([]byte, error) {
	if r.pod.Spec.HostNetwork {
		node, err := r.s.cfg.Folders.NodeHosts()
		if err != nil {
			return nil, err
		}
		return podfiles.NodeHosts(node, r.pod.Spec.HostAliases), nil
	}
	name, domain, err := r.node.Hostname(r.pod)
	if err != nil {
		return nil, err
	}
	return podfiles.Hosts(r.status.IPs, name, domain, r.pod.Spec.HostAliases), nil
}
