package podfiles

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestSignals holds that every signal that a pod may name is one of the
// runtime's, and comes back from it under the same name.
func TestSignals(t *testing.T) {
	for _, name := range []v1.Signal{v1.SIGTERM, v1.SIGUSR1, v1.SIGCLD, v1.SIGRTMIN, v1.SIGRTMINPLUS15, v1.SIGRTMAXMINUS14, v1.SIGRTMAX} {
		c := &v1.Container{Lifecycle: &v1.Lifecycle{StopSignal: &name}}
		signal := stopSignal(c)
		if signal == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
			t.Errorf("%s is no signal of the runtime", name)
		}
		if back := SignalName(signal); back == nil || *back != name {
			t.Errorf("%s came back as %v", name, back)
		}
	}
	for number := range runtimeapi.Signal_name {
		if name := SignalName(runtimeapi.Signal(number)); name == nil && number != 0 {
			t.Errorf("signal %d has no name", number)
		}
	}
	if got := stopSignal(&v1.Container{Lifecycle: &v1.Lifecycle{}}); got != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		t.Errorf("without a name: got %v", got)
	}
}
