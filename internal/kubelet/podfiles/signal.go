package podfiles

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The API and the runtime name signals alike, but for the beginning and for
// those that are counted from another, such as SIGRTMIN+3.
const signalPrefix = "SIGNAL_"

var (
	toRuntime = strings.NewReplacer("+", "PLUS", "-", "MINUS")
	toAPI     = strings.NewReplacer("PLUS", "+", "MINUS", "-")
)

// stopSignal returns the signal that asks a container to end: the runtime's
// default, which is the image's or SIGTERM, unless the pod names one.
func stopSignal(c *v1.Container) runtimeapi.Signal {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
	}
	return runtimeapi.Signal(runtimeapi.Signal_value[signalPrefix+toRuntime.Replace(string(*c.Lifecycle.StopSignal))])
}

// SignalName returns the API's name of a signal, or nil for one that the
// runtime does not tell.
func SignalName(s runtimeapi.Signal) *v1.Signal {
	name, ok := strings.CutPrefix(runtimeapi.Signal_name[int32(s)], signalPrefix)
	if !ok || s == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return nil
	}
	return new(v1.Signal(toAPI.Replace(name)))
}
