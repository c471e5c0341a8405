package kubelet

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// A recorder sends events to the API: client-go's broadcaster as a part that
// ends.
type recorder struct {
	record.EventRecorder
	broadcaster record.EventBroadcaster
	client      kubernetes.Interface
}

func newRecorder(client kubernetes.Interface, node string) *recorder {
	b := record.NewBroadcaster()
	return &recorder{
		EventRecorder: b.NewRecorder(scheme.Scheme, v1.EventSource{Component: "kubelet", Host: node}),
		broadcaster:   b,
		client:        client,
	}
}

// run sends until ctx is done. Events that were made before it are kept.
func (r *recorder) run(ctx context.Context) error {
	sending := r.broadcaster.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: r.client.CoreV1().Events("")})
	<-ctx.Done()
	sending.Stop()
	r.broadcaster.Shutdown()
	return nil
}
