package guest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/test/guest/initramfs"
)

// An image is the content of the machine's root file system.
type image struct {
	files map[string]string // path in the machine → path on the host
	texts map[string]string // path in the machine → content
	links map[string]string // path in the machine → target
}

// hostPrograms are the host's own that the machine gets, with their libraries.
// The rest is busybox.
var hostPrograms = []string{
	"iptables", "iptables-restore", "iptables-save", "mkfs.ext4", "mkfs.xfs",
	"blkid", "fsck", "fsck.ext4", "resize2fs",
}

// modules lists the folders of kernel modules that a node or a test may need.
var modules = []string{
	"block", "crypto", "fs", "lib", "mm", "net", "arch/x86/crypto",
	"drivers/block", "drivers/virtio", "drivers/char", "drivers/md", "drivers/dax",
	"drivers/net/veth.ko", "drivers/net/dummy.ko", "drivers/net/macvlan.ko", "drivers/net/ipvlan", "drivers/net/vxlan",
}

// newImage collects what every machine has, and extra: path in the machine →
// file or folder on the host.
func newImage(ctx context.Context, k kernel, initProgram string, extra map[string]string) (*image, error) {
	img := &image{
		files: map[string]string{"/init": initProgram},
		links: map[string]string{"/sbin": "bin", "/usr/bin": "../bin", "/usr/sbin": "../bin"},
		texts: map[string]string{
			"/etc/passwd":   "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
			"/etc/group":    "root:x:0:\nnogroup:x:65534:\n",
			"/etc/hosts":    "127.0.0.1 localhost guest\n",
			"/root/.empty":  "",
			"/etc/hostname": "guest\n",
		},
	}
	for guest, host := range extra {
		if err := img.add(guest, host); err != nil {
			return nil, err
		}
	}
	if err := img.addModules(k); err != nil {
		return nil, err
	}
	for _, name := range hostPrograms {
		if err := img.addProgram(ctx, name); err != nil {
			return nil, err
		}
	}
	// What iptables loads at run time.
	plugins, err := filepath.Glob("/usr/lib/*-linux-gnu/xtables/*.so")
	if err != nil {
		return nil, err
	}
	for _, path := range plugins {
		if err := img.add(path, path); err != nil {
			return nil, err
		}
	}
	return img, img.addBusybox(ctx)
}

// add adds a file, or a folder with what is in it. Links are followed.
func (img *image) add(guest, host string) error {
	host, err := filepath.EvalSymlinks(host)
	if err != nil {
		return err
	}
	return filepath.WalkDir(host, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		img.files[filepath.Join(guest, strings.TrimPrefix(path, host))] = path
		return nil
	})
}

func (img *image) addModules(k kernel) error {
	base := "/lib/modules/" + k.version
	lists, err := filepath.Glob(filepath.Join(k.modules, "modules.*"))
	if err != nil {
		return err
	}
	for _, list := range lists {
		if err := img.add(filepath.Join(base, filepath.Base(list)), list); err != nil {
			return err
		}
	}
	for _, folder := range modules {
		err := img.add(filepath.Join(base, "kernel", folder), filepath.Join(k.modules, "kernel", folder))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // another kernel may have it built in
			return err
		}
	}
	return nil
}

// addProgram adds a program of the host, and the libraries it is linked with
// where it expects them.
func (img *image) addProgram(ctx context.Context, name string) error {
	path, err := lookHost(name)
	if err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	// Programs of many names look at the one they are called by.
	img.links["/bin/"+name] = "/usr/lib/host/" + filepath.Base(real)
	if err := img.add("/usr/lib/host/"+filepath.Base(real), real); err != nil {
		return err
	}
	libraries, err := output(ctx, "", "ldd", real)
	if err != nil {
		return err
	}
	for line := range strings.Lines(libraries) {
		fields := strings.Fields(line)
		if i := slices.IndexFunc(fields, filepath.IsAbs); i >= 0 {
			if err := img.add(fields[i], fields[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// addBusybox adds a static busybox, under every name that nobody else has.
func (img *image) addBusybox(ctx context.Context) error {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	if err := img.add("/usr/lib/host/busybox", path); err != nil {
		return err
	}
	applets, err := output(ctx, "", path, "--list")
	if err != nil {
		return err
	}
	for applet := range strings.FieldsSeq(applets) {
		if _, taken := img.links["/bin/"+applet]; !taken {
			img.links["/bin/"+applet] = "/usr/lib/host/busybox"
		}
	}
	return nil
}

// lookHost is exec.LookPath, with the administrator's folders.
func lookHost(name string) (string, error) {
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}

// build writes the image into the cache folder, unless it is there, and
// returns its path.
func (img *image) build(cache string) (string, error) {
	sum, err := img.hash()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "image-"+sum+".cpio")
	if _, err := os.Stat(path); err == nil {
		now := time.Now()
		return path, os.Chtimes(path, now, now)
	}
	prune(cache)
	f, err := os.CreateTemp(cache, "building-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	err = errors.Join(img.write(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return path, err
}

func (img *image) write(f io.Writer) error {
	w := initramfs.NewWriter(f)
	for _, dir := range []string{"/proc", "/sys", "/dev", "/run", "/tmp", "/var/lib", "/mnt"} {
		if err := w.Dir(dir); err != nil {
			return err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(img.links)) {
		if err := w.Symlink(path, img.links[path]); err != nil {
			return err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(img.texts)) {
		if err := w.File(path, 0o644, int64(len(img.texts[path])), strings.NewReader(img.texts[path])); err != nil {
			return err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(img.files)) {
		if err := writeFile(w, path, img.files[path]); err != nil {
			return err
		}
	}
	return w.Close()
}

func writeFile(w *initramfs.Writer, path, host string) error {
	f, err := os.Open(host)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return w.File(path, uint32(info.Mode().Perm()), info.Size(), f)
}

// hash returns what tells this image from another: every name and every byte.
func (img *image) hash() (string, error) {
	h := sha256.New()
	for _, m := range []map[string]string{img.links, img.texts} {
		for _, path := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(h, "%q %q\n", path, m[path])
		}
	}
	for _, path := range slices.Sorted(maps.Keys(img.files)) {
		f, err := os.Open(img.files[path])
		if err != nil {
			return "", err
		}
		info, err := f.Stat()
		if err == nil {
			fmt.Fprintf(h, "%q %o %d\n", path, info.Mode(), info.Size())
			_, err = io.Copy(h, f)
		}
		_ = f.Close()
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// prune removes all but the newest two images, none that was used within the
// hour: a machine may be about to boot it again.
func prune(cache string) {
	images, err := filepath.Glob(filepath.Join(cache, "image-*.cpio"))
	if err != nil {
		return
	}
	slices.SortFunc(images, func(a, b string) int { return modTime(b).Compare(modTime(a)) })
	for i, path := range images {
		if i >= 2 && time.Since(modTime(path)) > time.Hour {
			_ = os.Remove(path) // it only costs room
		}
	}
}

// modTime returns when a file was written; never, where it is gone.
func modTime(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
