package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// kernelPackage depends on the newest kernel for virtual machines.
const kernelPackage = "linux-image-cloud-amd64"

// A kernel is a distribution's, unpacked and never installed.
type kernel struct {
	version string
	image   string // bzImage
	modules string // folder of kernel/ and the modules' lists
}

// fetchKernel returns the newest kernel in the cache folder; where there is none, it
// downloads the distribution's package and unpacks it there. It needs no root.
func fetchKernel(ctx context.Context, cache string) (kernel, error) {
	if k, err := findKernel(cache); err == nil {
		return k, nil
	}
	package_, err := kernelDependency(ctx)
	if err != nil {
		return kernel{}, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return kernel{}, err
	}
	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return kernel{}, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if _, err := output(ctx, work, "apt-get", "download", "-q", package_); err != nil {
		return kernel{}, err
	}
	archives, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(archives) != 1 {
		return kernel{}, fmt.Errorf("apt-get download %s left %v", package_, archives)
	}
	root := filepath.Join(work, "root")
	if _, err := output(ctx, work, "dpkg-deb", "-x", archives[0], root); err != nil {
		return kernel{}, err
	}
	version, ok := strings.CutPrefix(strings.TrimSuffix(package_, "-unsigned"), "linux-image-")
	if !ok {
		return kernel{}, fmt.Errorf("%s is no kernel's package", package_)
	}
	// The list of which module needs which is made at installation.
	if _, err := output(ctx, work, "busybox", "depmod", "-b", root, version); err != nil {
		return kernel{}, err
	}
	err = os.Rename(root, filepath.Join(cache, "kernel-"+version))
	if found, findErr := findKernel(cache); findErr == nil { // another one may have been faster
		return found, nil
	}
	return kernel{}, errors.Join(fmt.Errorf("no kernel in %s", package_), err)
}

// findKernel returns the newest kernel that is unpacked already.
func findKernel(cache string) (kernel, error) {
	images, err := filepath.Glob(filepath.Join(cache, "kernel-*", "boot", "vmlinuz-*"))
	if err != nil || len(images) == 0 {
		return kernel{}, fmt.Errorf("no kernel in %s", cache)
	}
	image := slices.MaxFunc(images, func(a, b string) int { return modTime(a).Compare(modTime(b)) })
	version := strings.TrimPrefix(filepath.Base(image), "vmlinuz-")
	root := filepath.Dir(filepath.Dir(image))
	modules := filepath.Join(root, "lib", "modules", version)
	if _, err := os.Stat(filepath.Join(modules, "modules.dep")); err != nil {
		return kernel{}, err
	}
	return kernel{version: version, image: image, modules: modules}, nil
}

// kernelDependency returns the package that kernelPackage stands for today.
func kernelDependency(ctx context.Context) (string, error) {
	out, err := output(ctx, "", "apt-cache", "depends", kernelPackage)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok {
			return name, nil
		}
	}
	return "", fmt.Errorf("the package lists name no %s: run \"apt-get update\"", kernelPackage)
}

// output runs a program of the host in dir and returns what it printed.
func output(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", program, err)
	}
	return string(out), nil
}
