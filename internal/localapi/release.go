package localapi

import (
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/util/compatibility"
	basecompatibility "k8s.io/component-base/compatibility"

	"github.com/holdfast-dev/holdfast/internal/version"
)

// KubernetesVersion is the version of the Kubernetes libraries in this
// program, and what the API says it is. A test compares it with go.mod.
const KubernetesVersion = version.Kubernetes

// release is the libraries' effective version with the name of their release,
// which upstream's build would stamp into them.
type release struct {
	basecompatibility.EffectiveVersion
}

func effectiveVersion() release {
	return release{compatibility.DefaultBuildEffectiveVersion()}
}

// Info returns what /version answers.
func (r release) Info() *apimachineryversion.Info {
	info := r.EffectiveVersion.Info()
	info.GitVersion = KubernetesVersion
	info.GitTreeState = "clean"
	info.GitCommit = ""
	return info
}
