// Package userids gives pods that have user namespaces the host's user and group
// IDs that theirs are mapped to, so that no two of them share one.
//
// What a pod has stands in the file "userns" of its folder, in the upstream
// kubelet's format, and nowhere else: it is the pod's as long as the folder is
// there, over restarts of the agent, and goes with it. Any goroutine may call
// any method.
package userids

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

const (
	// Unit is what the number of IDs of a pod is a multiple of: the number that
	// programs expect.
	Unit = 65536

	fileName = "userns"
)

// Config says which IDs there are.
type Config struct {
	// Dir is the kubelet's folder. Required.
	Dir string
	// PerPod is how many IDs a pod gets, a multiple of Unit. Default: Unit.
	PerPod uint32
	// Pods is how many pods the IDs have to be enough for. Default: 110.
	Pods uint32
	// Host returns the IDs that pods may have. Default: those of the user
	// "kubelet" where the host has subordinate IDs for it, else all but the first
	// PerPod.
	Host func(ctx context.Context, perPod uint32) (podfiles.UserIDs, error)
}

func (c Config) withDefaults() Config {
	if c.PerPod == 0 {
		c.PerPod = Unit
	}
	if c.Pods == 0 {
		c.Pods = 110
	}
	if c.Host == nil {
		c.Host = ofHost
	}
	return c
}

// Users gives IDs to pods.
type Users struct {
	cfg Config
	mu  sync.Mutex // held while IDs are chosen and written
}

// New returns a Users. It looks at nothing yet.
func New(cfg Config) *Users { return &Users{cfg: cfg.withDefaults()} }

// Of returns the IDs of a pod, whose folder has to be there: those that it had
// already, or else the first that no pod has. A file that cannot be read stands
// in the way of all new ones, as it may hold any.
func (u *Users) Of(ctx context.Context, uid types.UID) (podfiles.UserIDs, error) {
	if !podfiles.IsFolderName(string(uid)) {
		return podfiles.UserIDs{}, fmt.Errorf("%q is not a name of a folder", uid)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	path := filepath.Join(podfiles.PodFolder(u.cfg.Dir, uid), fileName)
	ids, err := read(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return ids, err
	}
	host, err := u.host(ctx)
	if err != nil {
		return podfiles.UserIDs{}, err
	}
	taken, err := u.taken()
	if err != nil {
		return podfiles.UserIDs{}, err
	}
	ids, ok := free(host, u.cfg.PerPod, taken)
	if !ok {
		return podfiles.UserIDs{}, errors.New("could not find an empty slot to allocate a user namespace")
	}
	return ids, write(path, ids)
}

// host returns the IDs that pods may have, if they are as upstream demands.
func (u *Users) host(ctx context.Context) (podfiles.UserIDs, error) {
	per := u.cfg.PerPod
	if per%Unit != 0 {
		return podfiles.UserIDs{}, fmt.Errorf("%d IDs for each pod are no multiple of %d", per, Unit)
	}
	host, err := u.cfg.Host(ctx, per)
	switch {
	case err != nil:
		return podfiles.UserIDs{}, fmt.Errorf("which user IDs pods may have: %w", err)
	case host.First < per:
		return podfiles.UserIDs{}, fmt.Errorf("pods may have the user IDs from %d on: it must be %d at least, as the first are the host's own", host.First, per)
	case host.First%per != 0 || host.Count%per != 0:
		return podfiles.UserIDs{}, fmt.Errorf("pods may have %d user IDs from %d on: both must be multiples of %d", host.Count, host.First, per)
	case host.Count/per < u.cfg.Pods:
		return podfiles.UserIDs{}, fmt.Errorf("pods may have %d user IDs, which is not enough for %d pods with %d each", host.Count, u.cfg.Pods, per)
	}
	return host, nil
}

// taken returns the IDs that pods have. Folders without the file are pods'
// with the host's users.
func (u *Users) taken() ([]podfiles.UserIDs, error) {
	pods, err := os.ReadDir(filepath.Dir(podfiles.PodFolder(u.cfg.Dir, "any")))
	if err != nil {
		return nil, err
	}
	var all []podfiles.UserIDs
	for _, pod := range pods {
		ids, err := read(filepath.Join(podfiles.PodFolder(u.cfg.Dir, types.UID(pod.Name())), fileName))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, ids)
	}
	return all, nil
}

// free returns the first slot of per IDs of the host's that overlaps none of
// those taken. They may be of another size, given by an earlier configuration.
func free(host podfiles.UserIDs, per uint32, taken []podfiles.UserIDs) (podfiles.UserIDs, bool) {
	for slot := range host.Count / per {
		ids := podfiles.UserIDs{First: host.First + slot*per, Count: per}
		if !slices.ContainsFunc(taken, func(other podfiles.UserIDs) bool { return overlap(ids, other) }) {
			return ids, true
		}
	}
	return podfiles.UserIDs{}, false
}

func overlap(a, b podfiles.UserIDs) bool {
	return uint64(a.First) < uint64(b.First)+uint64(b.Count) && uint64(b.First) < uint64(a.First)+uint64(a.Count)
}

// mappings is the file's form.
type mappings struct {
	Users  []mapping `json:"uidMappings"`
	Groups []mapping `json:"gidMappings"`
}

type mapping struct {
	Host  uint32 `json:"hostId"`
	Pod   uint32 `json:"containerId"`
	Count uint32 `json:"length"`
}

func write(path string, ids podfiles.UserIDs) error {
	all := []mapping{{Host: ids.First, Count: ids.Count}}
	text, err := json.Marshal(mappings{all, all})
	if err != nil {
		return err
	}
	return atomicfile.Write(path, text, 0o600)
}

func read(path string) (podfiles.UserIDs, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return podfiles.UserIDs{}, err
	}
	ids, err := parse(text)
	if err != nil {
		return podfiles.UserIDs{}, fmt.Errorf("user IDs of a pod in %s: %w (delete the pod, or the file if there is no such pod)", path, err)
	}
	return ids, nil
}

// parse reads a file. One mapping of users from 0 on, and the same of groups, is
// all that upstream's kubelet ever writes or takes.
func parse(text []byte) (podfiles.UserIDs, error) {
	var m mappings
	if err := json.Unmarshal(text, &m); err != nil {
		return podfiles.UserIDs{}, err
	}
	if len(m.Users) != 1 || !slices.Equal(m.Users, m.Groups) {
		return podfiles.UserIDs{}, errors.New("not one mapping of users, and the same of groups")
	}
	ids := podfiles.UserIDs{First: m.Users[0].Host, Count: m.Users[0].Count}
	if m.Users[0].Pod != 0 || ids.Count == 0 || uint64(ids.First)+uint64(ids.Count) > 1<<32 {
		return podfiles.UserIDs{}, fmt.Errorf("%d IDs from %d on for the pod's %d", ids.Count, ids.First, m.Users[0].Pod)
	}
	return ids, nil
}
