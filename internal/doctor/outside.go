package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// patience is how long one program or a runtime may take to answer.
const patience = 5 * time.Second

// asked are the programs that say their version, and how they are asked: one
// of another architecture is there, and does not run.
var asked = map[string]string{"containerd": "--version", "runc": "--version", "containerd-shim-runc-v2": "-v"}

// runtimePrograms looks for what the private container runtime consists of.
func runtimePrograms(ctx context.Context, dir string, names []string) []Program {
	if dir == "" {
		return nil
	}
	var list []Program
	for _, name := range names {
		p := Program{Name: name, Path: filepath.Join(dir, name)}
		if how, ok := asked[name]; ok {
			p.Version, p.Err = output(ctx, p.Path, how)
		} else {
			p.Err = executable(p.Path)
		}
		list = append(list, p)
	}
	return list
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Mode()&0o111 == 0) {
		err = &fs.PathError{Op: "run", Path: path, Err: fs.ErrPermission}
	}
	return err
}

// output runs a program and returns its first line.
func output(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return strings.TrimRight(line, ":"), err
}

// firewall finds iptables, tries it, and reads the policy of forwarding.
func firewall(ctx context.Context) (p Program, policy string) {
	p.Name = "iptables"
	if p.Path, p.Err = exec.LookPath("iptables"); p.Err != nil {
		for _, path := range []string{"/usr/sbin/iptables", "/sbin/iptables"} {
			if executable(path) == nil {
				p.Path, p.Err = path, nil
				break
			}
		}
	}
	if p.Err != nil {
		return p, ""
	}
	if p.Version, p.Err = output(ctx, p.Path, "--version"); p.Err != nil || os.Geteuid() != 0 {
		return p, ""
	}
	line, err := output(ctx, p.Path, "-w", "5", "-S", "FORWARD")
	if err != nil {
		p.Err = errors.Join(err, errors.New(line))
		return p, ""
	}
	return p, strings.TrimPrefix(line, "-P FORWARD ")
}

// askRuntime asks a container runtime for its version.
func askRuntime(ctx context.Context, endpoint string) (e Endpoint) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return Endpoint{Err: err}
	}
	v, err := runtimeapi.NewRuntimeServiceClient(conn).Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("no answer within %v", patience)
	}
	if err = errors.Join(err, conn.Close()); err != nil {
		return Endpoint{Err: err}
	}
	return Endpoint{Name: v.RuntimeName, Version: v.RuntimeVersion, API: v.RuntimeApiVersion}
}

// filesystems are those that a node may meet, by their magic number (statfs(2)).
var filesystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", 0x2fc12fc1: "zfs",
	unix.F2FS_SUPER_MAGIC: "f2fs", unix.TMPFS_MAGIC: "tmpfs", unix.RAMFS_MAGIC: "ramfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay",
	unix.NFS_SUPER_MAGIC: "nfs", unix.SMB2_SUPER_MAGIC: "cifs", unix.CIFS_SUPER_MAGIC: "cifs", unix.FUSE_SUPER_MAGIC: "fuse",
	unix.MSDOS_SUPER_MAGIC: "vfat", unix.SQUASHFS_MAGIC: "squashfs", unix.ECRYPTFS_SUPER_MAGIC: "ecryptfs",
}

// disk looks at the filesystem of a folder that may be there later.
func disk(path string) Disk {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(path, &st)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || path == "/" || path == "." {
			return Disk{Path: path, Err: err}
		}
		path = filepath.Dir(path)
	}
	d := Disk{
		Path: path, Type: filesystems[st.Type], Free: int64(st.Bfree) * st.Bsize, FreeFiles: int64(st.Ffree),
		ReadOnly: st.Flags&unix.ST_RDONLY != 0, NoExec: st.Flags&unix.ST_NOEXEC != 0,
		NoSUID: st.Flags&unix.ST_NOSUID != 0, NoDev: st.Flags&unix.ST_NODEV != 0,
	}
	if st.Files == 0 {
		d.FreeFiles = -1 // btrfs makes inodes as they are wanted
	}
	d.Persistent = d.Type != "tmpfs" && d.Type != "ramfs"
	return d
}
