package manifest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/certificates"
	certificatesinstall "k8s.io/kubernetes/pkg/apis/certificates/install"
	certificatesvalidation "k8s.io/kubernetes/pkg/apis/certificates/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	coreinstall "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	nodeinstall "k8s.io/kubernetes/pkg/apis/node/install"
	nodevalidation "k8s.io/kubernetes/pkg/apis/node/validation"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	schedulinginstall "k8s.io/kubernetes/pkg/apis/scheduling/install"
	schedulingvalidation "k8s.io/kubernetes/pkg/apis/scheduling/validation"
	"k8s.io/kubernetes/pkg/apis/storage"
	storageinstall "k8s.io/kubernetes/pkg/apis/storage/install"
	storagevalidation "k8s.io/kubernetes/pkg/apis/storage/validation"
	"k8s.io/kubernetes/pkg/capabilities" //nolint:depguard // validation reads this setting of the process, whose default refuses privileged pods

	podutil "k8s.io/kubernetes/pkg/api/pod"
)

// DefaultNamespace is where an object goes that names no namespace.
const DefaultNamespace = corev1.NamespaceDefault

// A kind is what the parser knows of one supported kind.
type kind struct {
	gvk        schema.GroupVersionKind
	namespaced bool
	object     reflect.Type // the external type, not a pointer
	validate   func(internal runtime.Object) field.ErrorList
}

// New returns a parser. It makes privileged pods pass validation, which is a
// setting of the whole process in upstream's code; whoever set it first wins.
func New() *Parser {
	capabilities.Setup(true, 0)
	scheme := runtime.NewScheme()
	coreinstall.Install(scheme)
	storageinstall.Install(scheme)
	schedulinginstall.Install(scheme)
	nodeinstall.Install(scheme)
	certificatesinstall.Install(scheme)
	return &Parser{scheme: scheme, kinds: supported()}
}

// supported returns the kinds that may stand in a file, by name.
func supported() map[string]kind {
	kinds := []kind{
		{corev1.SchemeGroupVersion.WithKind("Pod"), true, reflect.TypeFor[corev1.Pod](), validatePod},
		{corev1.SchemeGroupVersion.WithKind("Namespace"), false, reflect.TypeFor[corev1.Namespace](), checks(validation.ValidateNamespace)},
		{corev1.SchemeGroupVersion.WithKind("ConfigMap"), true, reflect.TypeFor[corev1.ConfigMap](), checks(validation.ValidateConfigMap)},
		{corev1.SchemeGroupVersion.WithKind("Secret"), true, reflect.TypeFor[corev1.Secret](), checks(validation.ValidateSecret)},
		{corev1.SchemeGroupVersion.WithKind("ServiceAccount"), true, reflect.TypeFor[corev1.ServiceAccount](), checks(validation.ValidateServiceAccount)},
		{corev1.SchemeGroupVersion.WithKind("PersistentVolume"), false, reflect.TypeFor[corev1.PersistentVolume](), checks(validatePersistentVolume)},
		{corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), true, reflect.TypeFor[corev1.PersistentVolumeClaim](), checks(validateClaim)},
		{storagev1.SchemeGroupVersion.WithKind("StorageClass"), false, reflect.TypeFor[storagev1.StorageClass](), checks[*storage.StorageClass](storagevalidation.ValidateStorageClass)},
		{schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"), false, reflect.TypeFor[schedulingv1.PriorityClass](), checks[*scheduling.PriorityClass](schedulingvalidation.ValidatePriorityClass)},
		{nodev1.SchemeGroupVersion.WithKind("RuntimeClass"), false, reflect.TypeFor[nodev1.RuntimeClass](), checks(nodevalidation.ValidateRuntimeClass)},
		{certificatesv1.SchemeGroupVersion.WithKind("ClusterTrustBundle"), false, reflect.TypeFor[certificatesv1.ClusterTrustBundle](), checks(validateTrustBundle)},
	}
	byName := make(map[string]kind, len(kinds))
	for _, k := range kinds {
		byName[k.gvk.Kind] = k
	}
	return byName
}

// checks makes a typed validation function fit kind.validate.
func checks[T runtime.Object](f func(T) field.ErrorList) func(runtime.Object) field.ErrorList {
	return func(obj runtime.Object) field.ErrorList { return f(obj.(T)) }
}

func validatePod(obj runtime.Object) field.ErrorList {
	pod := obj.(*core.Pod)
	opts := podutil.GetValidationOptionsFromPodSpecAndMeta(&pod.Spec, nil, &pod.ObjectMeta, nil)
	errs := withoutEchoes(pod, validation.ValidatePodCreate(pod, opts))
	if len(pod.Spec.SchedulingGates) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "schedulingGates"),
			"a pod from a file is on its node already, so nothing would wait for them"))
	}
	return errs
}

// withoutEchoes leaves out that a mount's volume is not found where the volume is there
// and has faults of its own: upstream forgets it then.
func withoutEchoes(pod *core.Pod, errs field.ErrorList) field.ErrorList {
	return slices.DeleteFunc(errs, func(e *field.Error) bool {
		mount := strings.Contains(e.Field, ".volumeMounts[") || strings.Contains(e.Field, ".volumeDevices[")
		return e.Type == field.ErrorTypeNotFound && mount && slices.ContainsFunc(pod.Spec.Volumes, func(v core.Volume) bool {
			return v.Name == e.BadValue
		})
	})
}

func validatePersistentVolume(pv *core.PersistentVolume) field.ErrorList {
	return validation.ValidatePersistentVolume(pv, validation.ValidationOptionsForPersistentVolume(pv, nil))
}

func validateClaim(claim *core.PersistentVolumeClaim) field.ErrorList {
	return validation.ValidatePersistentVolumeClaim(claim, validation.ValidationOptionsForPersistentVolumeClaim(claim, nil))
}

func validateTrustBundle(bundle *certificates.ClusterTrustBundle) field.ErrorList {
	return certificatesvalidation.ValidateClusterTrustBundle(bundle, certificatesvalidation.ValidateClusterTrustBundleOptions{})
}

// notTaken says what to do with well-known kinds that are not taken from files.
// The first word is the API group.
var notTaken = map[string]struct{ group, hint string }{
	"Deployment":               {"apps", "write its spec.template as a Pod"},
	"ReplicaSet":               {"apps", "write its spec.template as a Pod"},
	"StatefulSet":              {"apps", "write its spec.template as a Pod, and its volumeClaimTemplates as PersistentVolumeClaims"},
	"DaemonSet":                {"apps", "write its spec.template as a Pod: there is one node"},
	"ReplicationController":    {"", "write its spec.template as a Pod"},
	"Job":                      {"batch", "write its spec.template as a Pod with restartPolicy OnFailure or Never"},
	"CronJob":                  {"batch", "write its spec.jobTemplate.spec.template as a Pod and start it from a timer of the host"},
	"Service":                  {"", "reach the pod by its IP, or give its container a hostPort"},
	"Endpoints":                {"", "apply it with kubectl"},
	"EndpointSlice":            {"discovery.k8s.io", "apply it with kubectl"},
	"Ingress":                  {"networking.k8s.io", "give the pod's container a hostPort"},
	"NetworkPolicy":            {"networking.k8s.io", "filter on the host"},
	"HorizontalPodAutoscaler":  {"autoscaling", "write as many Pods as are wanted"},
	"PodDisruptionBudget":      {"policy", "apply it with kubectl"},
	"Role":                     {"rbac.authorization.k8s.io", "apply it with kubectl"},
	"RoleBinding":              {"rbac.authorization.k8s.io", "apply it with kubectl"},
	"ClusterRole":              {"rbac.authorization.k8s.io", "apply it with kubectl"},
	"ClusterRoleBinding":       {"rbac.authorization.k8s.io", "apply it with kubectl"},
	"Node":                     {"", "leave it out: the node registers itself"},
	"Event":                    {"", "leave it out: events come from the system"},
	"Lease":                    {"coordination.k8s.io", "apply it with kubectl"},
	"LimitRange":               {"", "write the resources into each pod"},
	"ResourceQuota":            {"", "leave it out"},
	"PodTemplate":              {"", "write its template as a Pod"},
	"CustomResourceDefinition": {"apiextensions.k8s.io", "leave it out: only built-in kinds are served"},
}

// resolve finds the supported kind for what a document says, or the fault.
func (p *Parser) resolve(apiVersion, name string) (kind, *Fault) {
	k, ok := p.kinds[name]
	if ok {
		if want := k.gvk.GroupVersion().String(); apiVersion != want {
			return kind{}, &Fault{
				Reason: ReasonUnsupported, Field: "apiVersion",
				Message: fmt.Sprintf("%s is not a version of %s", quoteOr(apiVersion, "an empty value"), name), Suggestion: want,
			}
		}
		return k, nil
	}
	if other, ok := notTaken[name]; ok {
		if group, _, _ := cutGroup(apiVersion); group == other.group {
			return kind{}, &Fault{
				Reason: ReasonUnsupported, Field: "kind",
				Message: fmt.Sprintf("%s is not supported in the manifest folder", name), Hint: other.hint,
			}
		}
	}
	f := &Fault{Reason: ReasonUnsupported, Field: "kind", Message: fmt.Sprintf("unknown kind %q of %q", name, apiVersion)}
	if name == "List" && apiVersion == "v1" { // one at the top never comes here
		f.Message, f.Hint = "a list in a list", "put its items into the outer list"
	} else if near := nearest(name, p.kindNames()); near != "" {
		f.Suggestion = near
	} else {
		f.Hint = "supported are " + strings.Join(p.kindNames(), ", ")
	}
	return kind{}, f
}

func (p *Parser) kindNames() []string {
	var names []string
	for name := range p.kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// cutGroup splits "apps/v1" and "v1" into group and version.
func cutGroup(apiVersion string) (group, version string, ok bool) {
	if group, version, ok = strings.Cut(apiVersion, "/"); ok {
		return group, version, true
	}
	return "", apiVersion, false
}

func quoteOr(s, empty string) string {
	if s == "" {
		return empty
	}
	return fmt.Sprintf("%q", s)
}
