package runtimehost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// unfinished is what there is of pods' networks before a containerd starts. One that
// was killed while it made a sandbox forgets that, but not so the kernel: a
// network namespace stays, and perhaps an address and rules of host ports.
type unfinished struct {
	sandboxes  []string // IDs, of whom there is anything
	namespaces []string // paths of network namespaces that no process is in
}

// unfinished looks for what was begun. No containerd may run: all that is found is of
// earlier ones.
func (c Config) unfinished() (unfinished, error) {
	leases, err := c.leased()
	if err != nil {
		return unfinished{}, err
	}
	answers, err := names(cniCache)
	if err != nil {
		return unfinished{}, err
	}
	for _, name := range answers {
		if id, ours := strings.CutPrefix(name, c.network()+"-"); ours {
			leases = append(leases, strings.TrimSuffix(id, "-"+podInterface))
		}
	}
	empty, err := c.emptyNamespaces()
	slices.Sort(leases)
	return unfinished{slices.Compact(leases), empty}, err
}

// podInterface is how containerd calls a pod's network interface.
const podInterface = "eth0"

// leased returns the IDs of sandboxes that have an address.
func (c Config) leased() ([]string, error) {
	dir := filepath.Join(c.leases(), c.network())
	files, err := names(dir)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, name := range files {
		if name == "lock" || strings.HasPrefix(name, "last_reserved_ip") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		id, _, _ := strings.Cut(string(data), "\n")
		ids = append(ids, strings.TrimSpace(id))
	}
	return ids, nil
}

// emptyNamespaces returns the paths of our network namespaces in which no process
// is. One of a sandbox that has ended is among them: taking it away before its
// sandbox is stopped does no harm, as a reboot does the same.
func (c Config) emptyNamespaces() ([]string, error) {
	dir := filepath.Join(c.RunDir, "containerd", "io.containerd.grpc.v1.cri", "netns")
	files, err := names(dir)
	if err != nil || len(files) == 0 {
		return nil, err
	}
	used := map[string]bool{}
	links, _ := filepath.Glob("/proc/[0-9]*/ns/net") // the pattern is good
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil { // else its process has ended
			used[target] = true
		}
	}
	var empty []string
	for _, name := range files {
		var stat unix.Stat_t
		path := filepath.Join(dir, name)
		if err := unix.Stat(path, &stat); err != nil {
			return nil, fmt.Errorf("look at %s: %w", path, err)
		}
		if !used[fmt.Sprintf("net:[%d]", stat.Ino)] {
			empty = append(empty, path)
		}
	}
	return empty, nil
}

// names returns what is in a folder; nothing if there is none.
func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// takeBack gives back what was begun for sandboxes that containerd does not know.
func (h *Host) takeBack(ctx context.Context, conn *grpc.ClientConn, was unfinished) error {
	if len(was.sandboxes)+len(was.namespaces) == 0 {
		return nil
	}
	list, err := runtimeapi.NewRuntimeServiceClient(conn).ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	known := map[string]bool{}
	for _, s := range list.GetItems() {
		known[s.GetId()] = true
	}
	var errs []error
	for _, path := range was.namespaces {
		errs = append(errs, removeNamespace(path))
	}
	for _, id := range was.sandboxes {
		if !known[id] {
			h.cfg.Log.Info("giving back the network of a pod that was begun and is not known", "object", id)
			errs = append(errs, h.releaseNetwork(ctx, id))
		}
	}
	return errors.Join(errs...)
}

func removeNamespace(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // not mounted, gone
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// releaseNetwork has the CNI plugins, last first, give back what they gave a
// sandbox whose network namespace is gone.
func (h *Host) releaseNetwork(ctx context.Context, id string) error {
	plugins := h.cfg.plugins(0) // how large packets are is nothing to them now
	slices.Reverse(plugins)
	var errs []error
	for _, plugin := range plugins {
		plugin["cniVersion"], plugin["name"] = cniVersion, h.cfg.network()
		// Without a port the plugin does nothing; with any it removes the rules of
		// all that the sandbox had, by its ID.
		plugin["runtimeConfig"] = object{"portMappings": []object{{"hostPort": 1, "containerPort": 1, "protocol": "tcp"}}}
		config, err := json.Marshal(plugin)
		if err != nil {
			return err
		}
		name := plugin["type"].(string)
		cmd := exec.CommandContext(ctx, h.cfg.program(filepath.Join("cni", name)))
		cmd.Env = append(os.Environ(), "CNI_COMMAND=DEL", "CNI_CONTAINERID="+id, "CNI_IFNAME="+podInterface, "CNI_NETNS=", "CNI_PATH="+h.cfg.program("cni"))
		cmd.Stdin = bytes.NewReader(config)
		if out, err := cmd.CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("%s: release the network of %s: %w: %s", name, id, err, bytes.TrimSpace(out)))
		}
	}
	answer := filepath.Join(cniCache, h.cfg.network()+"-"+id+"-"+podInterface)
	if err := os.Remove(answer); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
