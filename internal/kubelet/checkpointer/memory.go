package checkpointer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpointfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// What is kept, for who cannot have it from the API. Each is read from the disk
// when it is asked for. An error matches fs.ErrNotExist if nothing is kept.

// Object returns what a pod refers to.
func (c *Checkpointer) Object(ref podvolumes.Ref) (runtime.Object, error) {
	switch ref.Kind {
	case podvolumes.RefConfigMap:
		return read(c, refKey(ref), &v1.ConfigMap{})
	case podvolumes.RefSecret:
		return read(c, refKey(ref), &v1.Secret{})
	case podvolumes.RefClaim:
		return read(c, refKey(ref), &v1.PersistentVolumeClaim{})
	case podvolumes.RefPersistentVolume:
		return read(c, refKey(ref), &v1.PersistentVolume{})
	case podvolumes.RefCSIDriver:
		return read(c, refKey(ref), &storagev1.CSIDriver{})
	case podvolumes.RefRuntimeClass:
		return read(c, refKey(ref), &nodev1.RuntimeClass{})
	case podvolumes.RefTrustBundle:
		return read(c, refKey(ref), &certificatesv1.ClusterTrustBundleList{})
	default:
		return nil, fmt.Errorf("nobody keeps a %s: %w", ref.Kind, fs.ErrNotExist)
	}
}

// Token returns the last token that a request gave. It may have expired: the
// pod starts all the same, and the API does not answer it anyway.
func (c *Checkpointer) Token(namespace, account string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	return read(c, checkpointfile.TokenKey(namespace, account, request), &authenticationv1.TokenRequest{})
}

// Services returns the services of a namespace, as an environment names them.
func (c *Checkpointer) Services(namespace string) ([]*v1.Service, error) {
	kept, err := read(c, servicesKey(namespace), &[]v1.Service{})
	if err != nil {
		return nil, err
	}
	services := make([]*v1.Service, 0, len(*kept))
	for i := range *kept {
		services = append(services, &(*kept)[i])
	}
	return services, nil
}

// Node returns this node as the API last had it, without its conditions, or nil.
// It is read once.
func (c *Checkpointer) Node() *v1.Node {
	c.mu.Lock()
	node := c.mu.node
	c.mu.Unlock()
	if node != nil {
		return node
	}
	node, err := read(c, nodeKey, &v1.Node{})
	if err != nil {
		return nil // Faults tells why
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.node = node
	return node
}

// read reads an object into one that is empty.
func read[T any](c *Checkpointer, key checkpointfile.Key, into T) (T, error) {
	var none T
	data, err := c.cfg.Folder.Read(key)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	switch {
	case err == nil:
		return into, nil
	case !errors.Is(err, fs.ErrNotExist):
		c.unusable(checkpointfile.File{Name: key.File(), Key: key, Err: err})
	}
	return none, fmt.Errorf("checkpoint of %s: %w", key, err)
}

// explain says what to do about an error of a file.
func explain(err error) string {
	switch {
	case errors.Is(err, checkpointfile.ErrKey):
		return err.Error() + ": put the former key back, or have the API answer: everything is written anew then"
	case errors.Is(err, checkpointfile.ErrNoKey):
		return err.Error() + ": configure the key file again, or have the API answer"
	case errors.Is(err, checkpointfile.ErrPlain), errors.Is(err, checkpointfile.ErrDamaged):
		return err.Error() + ": it is written anew when the API answers"
	case errors.Is(err, checkpointfile.ErrNewer):
		return err.Error() + ": start that release, or have the API answer"
	}
	return err.Error()
}
