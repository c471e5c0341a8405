package objects

import (
	"errors"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// kinds are applied in this order and deleted in the reverse one: what others
// need comes first.
var kinds = []string{
	"Namespace", "RuntimeClass", "PriorityClass", "StorageClass", "PersistentVolume", "ClusterTrustBundle",
	"ServiceAccount", "ConfigMap", "Secret", "PersistentVolumeClaim",
}

// A resource is where the API has a kind.
type resource struct {
	schema.GroupVersionResource
	namespaced bool
}

var resources = map[string]resource{
	"Namespace":             {corev1.SchemeGroupVersion.WithResource("namespaces"), false},
	"RuntimeClass":          {nodev1.SchemeGroupVersion.WithResource("runtimeclasses"), false},
	"PriorityClass":         {schedulingv1.SchemeGroupVersion.WithResource("priorityclasses"), false},
	"StorageClass":          {storagev1.SchemeGroupVersion.WithResource("storageclasses"), false},
	"PersistentVolume":      {corev1.SchemeGroupVersion.WithResource("persistentvolumes"), false},
	"ClusterTrustBundle":    {certificatesv1.SchemeGroupVersion.WithResource("clustertrustbundles"), false},
	"ServiceAccount":        {corev1.SchemeGroupVersion.WithResource("serviceaccounts"), true},
	"ConfigMap":             {corev1.SchemeGroupVersion.WithResource("configmaps"), true},
	"Secret":                {corev1.SchemeGroupVersion.WithResource("secrets"), true},
	"PersistentVolumeClaim": {corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), true},
}

// in returns the client for a namespace, or for all of them if it is empty.
func (r resource) in(client dynamic.Interface, namespace string) dynamic.ResourceInterface {
	if r.namespaced {
		return client.Resource(r.GroupVersionResource).Namespace(namespace)
	}
	return client.Resource(r.GroupVersionResource)
}

func order(kind string) int { return slices.Index(kinds, kind) }

// faultsOf translates what the API says about a document, one fault for each
// field that it names.
func faultsOf(d manifest.Document, err error) []manifest.Fault {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return []manifest.Fault{d.Fault(manifest.ReasonNotApplied, "", "the API did not take it: "+firstLine(err.Error()), hint(d, err))}
	}
	var faults []manifest.Fault
	for _, c := range status.Status().Details.Causes {
		f := d.Fault(manifest.ReasonNotApplied, c.Field, "the API did not take it: "+firstLine(c.Message), hint(d, errors.New(c.Message)))
		faults = append(faults, f)
	}
	return faults
}

// firstLine leaves out what follows in some messages: the whole object.
func firstLine(message string) string {
	line, _, _ := strings.Cut(message, "\n")
	return line
}

// hint says what to do about what the API says.
func hint(d manifest.Document, err error) string {
	text := err.Error()
	switch {
	case errors.Is(err, errDeleting):
		return ""
	case strings.Contains(text, "immutable"):
		remedy := "it cannot be changed: undo the edit, or delete the object and it is created anew"
		if strings.HasPrefix(d.Key.Kind, "PersistentVolume") {
			remedy += ", by its reclaim policy without its data"
		}
		return remedy
	case missingNamespace(err):
		return "add a Namespace document of that name"
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		return "change the document; it is tried again"
	default:
		return "it is tried again"
	}
}

func missingNamespace(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Reason != metav1.StatusReasonNotFound {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "namespaces"
}
