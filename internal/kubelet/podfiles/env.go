package podfiles

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	resourceval "k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/fieldpath"
)

// A Var is one variable of an environment.
type Var struct {
	Name  string
	Value string
}

// EnvSources is where the values of an environment come from.
type EnvSources struct {
	PodIPs   []string // primary first; empty before the sandbox runs
	Services []*v1.Service
	// ConfigMap and Secret return an object of the pod's namespace. An error
	// that apierrors.IsNotFound knows is forgiven to an optional reference.
	ConfigMap func(name string) (*v1.ConfigMap, error)
	Secret    func(name string) (*v1.Secret, error)
	// File reads a file of a volume, at most MaxEnvFile bytes. An error that wraps
	// fs.ErrNotExist is forgiven to an optional reference.
	File func(volume, path string) ([]byte, error)
}

// Env returns a container's environment: envFrom in order, then env in order,
// then the services'. Later ones of a name replace earlier ones, except that a
// service never does. It is the same for the same input, unlike upstream's,
// whose order is random.
func (n *Node) Env(pod *v1.Pod, c *v1.Container, src EnvSources) ([]Var, error) {
	e := env{value: map[string]string{}}
	for i := range c.EnvFrom {
		if err := e.addFrom(&c.EnvFrom[i], src); err != nil {
			return nil, err
		}
	}
	services := n.serviceEnv(pod, src.Services)
	lookup := func(name string) (string, bool) {
		if v, ok := e.value[name]; ok {
			return v, true
		}
		v, ok := services[name]
		return v, ok
	}
	for i := range c.Env {
		v := &c.Env[i]
		if v.Value != "" || v.ValueFrom == nil {
			e.set(v.Name, Expand(v.Value, lookup))
			continue
		}
		value, ok, err := n.valueFrom(pod, c, v.ValueFrom, src)
		if err != nil {
			return nil, err
		}
		if ok {
			e.set(v.Name, value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		if _, ok := e.value[name]; !ok {
			e.set(name, services[name])
		}
	}
	return e.list(), nil
}

// env is an environment under construction.
type env struct {
	order []string
	value map[string]string
}

func (e *env) set(name, value string) {
	if _, ok := e.value[name]; !ok {
		e.order = append(e.order, name)
	}
	e.value[name] = value
}

func (e *env) list() []Var {
	out := make([]Var, 0, len(e.order))
	for _, name := range e.order {
		out = append(out, Var{name, e.value[name]})
	}
	return out
}

func (e *env) addFrom(from *v1.EnvFromSource, src EnvSources) error {
	switch {
	case from.ConfigMapRef != nil:
		cm, err := src.ConfigMap(from.ConfigMapRef.Name)
		if err != nil {
			return forgive(err, from.ConfigMapRef.Optional)
		}
		for _, k := range slices.Sorted(maps.Keys(cm.Data)) {
			e.set(from.Prefix+k, cm.Data[k])
		}
	case from.SecretRef != nil:
		secret, err := src.Secret(from.SecretRef.Name)
		if err != nil {
			return forgive(err, from.SecretRef.Optional)
		}
		for _, k := range slices.Sorted(maps.Keys(secret.Data)) {
			e.set(from.Prefix+k, string(secret.Data[k]))
		}
	}
	return nil
}

// forgive returns nil for a missing object that was optional.
func forgive(err error, optional *bool) error {
	if optional != nil && *optional && apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// valueFrom returns a variable's value; ok is false if an optional one has none.
func (n *Node) valueFrom(pod *v1.Pod, c *v1.Container, from *v1.EnvVarSource, src EnvSources) (value string, ok bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = n.field(pod, from.FieldRef, src.PodIPs)
		return value, err == nil, err
	case from.ResourceFieldRef != nil:
		value, err = n.resourceField(pod, c, from.ResourceFieldRef)
		return value, err == nil, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		cm, err := src.ConfigMap(ref.Name)
		if err != nil {
			return "", false, forgive(err, ref.Optional)
		}
		value, ok = cm.Data[ref.Key]
		if !ok && (ref.Optional == nil || !*ref.Optional) {
			return "", false, fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", ref.Key, pod.Namespace, ref.Name)
		}
		return value, ok, nil
	case from.FileKeyRef != nil:
		return fileKey(from.FileKeyRef, src.File)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		secret, err := src.Secret(ref.Name)
		if err != nil {
			return "", false, forgive(err, ref.Optional)
		}
		bytes, ok := secret.Data[ref.Key]
		if !ok && (ref.Optional == nil || !*ref.Optional) {
			return "", false, fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key, pod.Namespace, ref.Name)
		}
		return string(bytes), ok, nil
	default:
		return "", false, fmt.Errorf("a variable's source is of a kind that is not supported")
	}
}

func (n *Node) field(pod *v1.Pod, ref *v1.ObjectFieldSelector, podIPs []string) (string, error) {
	switch ref.FieldPath {
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		if len(n.IPs) == 0 {
			return "", fmt.Errorf("field %s: the node has no address", ref.FieldPath)
		}
		return n.IPs[0], nil
	case "status.hostIPs":
		return strings.Join(n.IPs, ","), nil
	case "status.podIP":
		if len(podIPs) == 0 {
			return "", nil
		}
		return podIPs[0], nil
	case "status.podIPs":
		return strings.Join(podIPs, ","), nil
	default:
		return fieldpath.ExtractFieldPathAsString(pod, ref.FieldPath)
	}
}

func (n *Node) resourceField(pod *v1.Pod, c *v1.Container, ref *v1.ResourceFieldSelector) (string, error) {
	name := ref.ContainerName
	if name == "" {
		name = c.Name
	}
	return resourceval.ExtractResourceValueByContainerNameAndNodeAllocatable(ref, pod, name, n.Allocatable)
}
