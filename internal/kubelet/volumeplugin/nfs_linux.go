package volumeplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// NFS is mounted by system calls alone: no program is run that could take a
// server's name or a path for something else. What mount programs do beside is
// done here: names are resolved, and versions are tried in turn.

const (
	nfsPort = "2049"
	// reachable is how long a server may take to be connected to before a mount is
	// tried. The mount itself would wait for minutes, and could not be ended.
	reachable = 10 * time.Second
	// nfsPatience is how long an unmount waits for a server that does not answer
	// before what was not written yet is given up: upstream's.
	nfsPatience = 30 * time.Second
	// maxOptions is how many bytes of options the kernel takes; it would cut the rest.
	maxOptions = 4095
)

// setUpNFS mounts an export.
func (h *Host) setUpNFS(ctx context.Context, dir string, v *podvolumes.Volume) error {
	isMount, err := mountedWithoutAsking(dir)
	if err != nil {
		return err
	}
	if isMount {
		return mark(h.layout.Ready(v.PodUID, v.ID), v.Name)
	}
	options, err := parseNFSOptions(v.MountOptions, v.ReadOnly)
	if err != nil {
		return err
	}
	if err := makeDir(dir); err != nil {
		return err
	}
	if err := mountNFS(ctx, v.NFSServer, v.NFSPath, dir, options); err != nil {
		return errors.Join(fmt.Errorf("mount %s: %w", nfsSource(v.NFSServer, v.NFSPath), err), removeEmpty(dir))
	}
	return mark(h.layout.Ready(v.PodUID, v.ID), v.Name)
}

// nfsSource names an export as the mount table has it.
func nfsSource(server, path string) string {
	if addr, err := netip.ParseAddr(server); err == nil && addr.Is6() {
		server = "[" + server + "]"
	}
	return server + ":" + path
}

// mountNFS tries each address of the server and each version, until one works or
// the server says something else than that it does not have the version.
func mountNFS(ctx context.Context, server, path, dir string, o nfsOptions) error {
	if strings.ContainsAny(server, ", \t\n\x00") || !strings.HasPrefix(path, "/") || strings.ContainsRune(path, 0) {
		return errors.New("nfs.server must be a name or an address, and nfs.path an absolute path")
	}
	ctx, cancel := context.WithTimeout(ctx, reachable)
	defer cancel()
	addr, err := o.reach(ctx, server)
	if err != nil {
		return err
	}
	for _, version := range o.versions {
		data := strings.Join(append(slices.Clone(o.data), version, "addr="+addr), ",")
		if version == "" {
			data = strings.Join(append(slices.Clone(o.data), "addr="+addr), ",")
		}
		if len(data) > maxOptions {
			return fmt.Errorf("mountOptions are longer than the %d bytes that the kernel takes", maxOptions)
		}
		err = unix.Mount(nfsSource(server, path), dir, "nfs", o.flags, data)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.ENODEV):
			return fmt.Errorf("%w: this machine's kernel has no NFS", err)
		case !errors.Is(err, unix.EPROTONOSUPPORT) && (!errors.Is(err, unix.EINVAL) || len(o.versions) == 1):
			return err
		}
	}
	return fmt.Errorf("%w (tried %s)", err, strings.Join(o.versions, ", "))
}

// reach returns an address of the server, of those that can be connected to.
// Where the port is not known beforehand, or there are no connections, the first.
func (o nfsOptions) reach(ctx context.Context, server string) (string, error) {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", server)
	if err != nil {
		return "", fmt.Errorf("find nfs.server %s: %w", server, err)
	}
	var errs []error
	for _, addr := range addrs {
		addr = addr.Unmap()
		if o.port == "" {
			return addr.String(), nil
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(addr.String(), o.port))
		if err == nil {
			return addr.String(), conn.Close()
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("nfs.server %s cannot be reached: %w", server, errors.Join(errs...))
}

// unmountNFS unmounts an export. A server that does not answer has half a minute
// to take what was not written yet; then that is given up, or the pod could never
// end. It asks the server nothing before.
func unmountNFS(ctx context.Context, dir string, patience time.Duration) error {
	isMount, err := mountedWithoutAsking(dir)
	if err != nil || !isMount {
		return err
	}
	gentle := make(chan error, 1)
	go func() { gentle <- unix.Unmount(dir, unix.UMOUNT_NOFOLLOW) }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err = <-gentle:
	case <-timer.C:
		// It fails what hangs, the call above too, which still holds the mount.
		for err = unix.EBUSY; errors.Is(err, unix.EBUSY) && ctx.Err() == nil; {
			err = unix.Unmount(dir, unix.UMOUNT_NOFOLLOW|unix.MNT_FORCE)
			select {
			case err = <-gentle:
			case <-time.After(time.Second):
			}
		}
	}
	if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: undone meanwhile
		return &fs.PathError{Op: "unmount", Path: dir, Err: err}
	}
	return nil
}

// mountedWithoutAsking reports whether something is mounted on path, from the
// mount table alone: a server that hangs is asked nothing.
func mountedWithoutAsking(path string) (bool, error) {
	points, err := mountPoints()
	return slices.Contains(points, path), err
}

// removeEmpty removes a folder that was a mount point; nil if it is gone. Were it
// not empty, what is in it would not be ours to remove.
func removeEmpty(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
