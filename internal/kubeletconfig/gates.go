package kubeletconfig

import (
	"slices"
	"strings"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	_ "k8s.io/kubernetes/pkg/features" // makes the gates known
)

// checkGates complains of gates that are not known, or that are to be other than
// they are: nothing here is switched by them. Gates may be named with the value
// that they have by default.
func checkGates(gates map[string]bool, wrong complaint) {
	if len(gates) == 0 {
		return
	}
	known := utilfeature.DefaultMutableFeatureGate.GetAll()
	for name, on := range gates {
		field := "featureGates." + name
		gate, ok := known[featuregate.Feature(name)]
		switch {
		case name == "AllAlpha" && !on: // as it is
		case name == "AllAlpha" || name == "AllBeta":
			wrong(field, "%t is not possible: remove it; every gate is as it is by default", on)
		case !ok:
			wrong(field, "there is no gate of this name in Kubernetes %s: remove it%s", upstreamVersion, meant(name, known))
		case on != gate.Default:
			wrong(field, "%t is not possible: remove it; every gate is as it is by default, and this one is %t", on, gate.Default)
		}
	}
}

// upstreamVersion is that of the kubelet whose configuration this is.
const upstreamVersion = "1.37"

// meant returns a hint to the gate whose name is written wrong, if one differs
// by case alone.
func meant(name string, known map[featuregate.Feature]featuregate.FeatureSpec) string {
	var names []string
	for gate := range known {
		if strings.EqualFold(string(gate), name) {
			names = append(names, string(gate))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; did you mean " + slices.Min(names) + "?"
}
