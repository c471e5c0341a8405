package devices

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
)

// A grant is what a container was given of one resource.
type grant struct {
	devices map[string][]int64 // the NUMA nodes of each device, by its ID
	answer  *pluginapi.ContainerAllocateResponse
}

// ids returns the IDs of the devices, in order.
func (g grant) ids() []string { return slices.Sorted(maps.Keys(g.devices)) }

// assignments are the grants by pod, container and resource.
type assignments map[types.UID]map[string]map[string]grant

func (a assignments) set(uid types.UID, container, resource string, g grant) {
	if a[uid] == nil {
		a[uid] = map[string]map[string]grant{}
	}
	if a[uid][container] == nil {
		a[uid][container] = map[string]grant{}
	}
	a[uid][container][resource] = g
}

func (a assignments) get(uid types.UID, container, resource string) (grant, bool) {
	g, ok := a[uid][container][resource]
	return g, ok
}

// all calls f with every grant of a resource.
func (a assignments) all(resource string, f func(uid types.UID, g grant)) {
	for uid, containers := range a {
		for _, resources := range containers {
			if g, ok := resources[resource]; ok {
				f(uid, g)
			}
		}
	}
}

// has reports whether any device of a resource was given.
func (a assignments) has(resource string) (found bool) {
	a.all(resource, func(types.UID, grant) { found = true })
	return found
}

// used returns the devices of a resource that pods have.
func (a assignments) used(resource string) sets.Set[string] {
	used := sets.New[string]()
	a.all(resource, func(_ types.UID, g grant) { used.Insert(g.ids()...) })
	return used
}

// holders returns the pods that have a device.
func (a assignments) holders(resource, id string) []types.UID {
	var pods []types.UID
	a.all(resource, func(uid types.UID, g grant) {
		if _, ok := g.devices[id]; ok {
			pods = append(pods, uid)
		}
	})
	return pods
}

// recordVersion is that of the format below.
const recordVersion = 1

// maxRecord bounds what is read of the file, in bytes.
const maxRecord = 64 << 20

// An envelope is the content of the file: Data as it was summed.
type envelope struct {
	Version  int             `json:"version"`
	Checksum string          `json:"checksum"` // SHA-256 of Data, in hexadecimal
	Data     json.RawMessage `json:"data"`
}

// A record is what the file holds.
type record struct {
	Resources []string      `json:"resources"` // that plugins have served
	Given     []givenRecord `json:"given"`
}

// A givenRecord is what one container has of one resource.
type givenRecord struct {
	PodUID    types.UID          `json:"podUID"`
	Container string             `json:"container"`
	Resource  string             `json:"resource"`
	Devices   map[string][]int64 `json:"devices"`  // NUMA nodes by ID
	Response  []byte             `json:"response"` // v1beta1.ContainerAllocateResponse
}

// encode returns the content of the file for a record.
func encode(r record) ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return json.Marshal(envelope{Version: recordVersion, Checksum: checksum(data), Data: data})
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// decode reads the content of the file. It takes only what encode makes.
func decode(content []byte) (record, error) {
	var e envelope
	if err := strict(content, &e); err != nil {
		return record{}, fmt.Errorf("it is not a record of Holdfast's, or is cut: %w", err)
	}
	if e.Version != recordVersion {
		return record{}, fmt.Errorf("its version is %d, and this program knows %d", e.Version, recordVersion)
	}
	if checksum(e.Data) != e.Checksum {
		return record{}, errors.New("its checksum is wrong: it is damaged")
	}
	var r record
	if err := strict(e.Data, &r); err != nil {
		return record{}, err
	}
	for _, g := range r.Given {
		if err := proto.Unmarshal(g.Response, &pluginapi.ContainerAllocateResponse{}); err != nil {
			return record{}, fmt.Errorf("answer of the plugin of %s: %w", g.Resource, err)
		}
	}
	return r, nil
}

func strict(content []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return errors.New("there is more after its end")
	}
	return nil
}

// assignments returns what the record says of pods.
func (r record) assignments() assignments {
	a := assignments{}
	for _, g := range r.Given {
		answer := &pluginapi.ContainerAllocateResponse{}
		if err := proto.Unmarshal(g.Response, answer); err != nil {
			continue // decode has seen that it is none
		}
		a.set(g.PodUID, g.Container, g.Resource, grant{devices: g.Devices, answer: answer})
	}
	return a
}

// load reads the file. One that cannot be understood is put aside, with a message.
func load(path string, log *slog.Logger) (record, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxRecord {
		return record{}, fmt.Errorf("%s has %d bytes, more than %d: it is not a record of Holdfast's", path, info.Size(), maxRecord)
	}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, err
	}
	r, err := decode(content)
	if err == nil {
		return r, nil
	}
	aside := path + ".aside"
	log.Error("the record of given devices is put aside, and containers that run may have to share theirs", "path", path, "to", aside, "err", err)
	return record{}, os.Rename(path, aside)
}

// save writes what was given, and which resources are plugins'.
func (m *Manager) save() error {
	m.saving.Lock()
	defer m.saving.Unlock()
	content, err := m.content()
	if err != nil {
		return err
	}
	path := m.recordPath()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return atomicfile.Write(path, content, 0o600)
}

func (m *Manager) content() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := record{Resources: slices.Sorted(maps.Keys(m.mu.resources))}
	for _, uid := range slices.Sorted(maps.Keys(m.mu.given)) {
		for _, container := range slices.Sorted(maps.Keys(m.mu.given[uid])) {
			resources := m.mu.given[uid][container]
			for _, resource := range slices.Sorted(maps.Keys(resources)) {
				response, err := proto.Marshal(resources[resource].answer)
				if err != nil {
					return nil, err
				}
				r.Given = append(r.Given, givenRecord{PodUID: uid, Container: container, Resource: resource, Devices: resources[resource].devices, Response: response})
			}
		}
	}
	return encode(r)
}
