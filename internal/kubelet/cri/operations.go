package cri

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Operations count what the runtime is asked for, under upstream's names. They
// may be used by many connections and goroutines.
type Operations struct {
	calls         *prometheus.CounterVec
	failed        *prometheus.CounterVec
	took          *prometheus.HistogramVec
	sandboxTook   *prometheus.HistogramVec
	sandboxFailed *prometheus.CounterVec
}

// NewOperations registers the metrics with to, if that is not nil.
func NewOperations(to prometheus.Registerer) *Operations {
	operation, handler := []string{"operation_type"}, []string{"runtime_handler"}
	o := &Operations{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_total", Help: "What the container runtime was asked for, by operation.",
		}, operation),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_errors_total", Help: "What the container runtime was asked for and did not do, by operation.",
		}, operation),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_runtime_operations_duration_seconds", Help: "How long the container runtime took, by operation.",
			Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14),
		}, operation),
		sandboxTook: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_run_podsandbox_duration_seconds", Help: "How long it took to start a sandbox, by the handler of its RuntimeClass.",
			Buckets: prometheus.DefBuckets,
		}, handler),
		sandboxFailed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_run_podsandbox_errors_total", Help: "Sandboxes that did not start, by the handler of their RuntimeClass.",
		}, handler),
	}
	if to != nil {
		to.MustRegister(o.calls, o.failed, o.took, o.sandboxTook, o.sandboxFailed)
	}
	return o
}

// Option has a connection counted.
func (o *Operations) Option() grpc.DialOption { return grpc.WithChainUnaryInterceptor(o.count) }

func (o *Operations) count(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	began := time.Now()
	err := invoke(ctx, method, req, reply, conn, opts...)
	if name, ok := operation(method); ok {
		took := time.Since(began).Seconds()
		o.calls.WithLabelValues(name).Inc()
		o.took.WithLabelValues(name).Observe(took)
		if err != nil {
			o.failed.WithLabelValues(name).Inc()
		}
		if sandbox, ok := req.(*runtimeapi.RunPodSandboxRequest); ok {
			o.sandboxTook.WithLabelValues(sandbox.GetRuntimeHandler()).Observe(took)
			if err != nil {
				o.sandboxFailed.WithLabelValues(sandbox.GetRuntimeHandler()).Inc()
			}
		}
	}
	return err
}

// operation is upstream's name of a method of CRI; it has none for those of other
// services.
func operation(method string) (string, bool) {
	method, ok := strings.CutPrefix(method, "/runtime.v1.")
	_, method, named := strings.Cut(method, "/")
	if !ok || !named {
		return "", false
	}
	if method == "UpdateContainerResources" {
		return "update_container", true
	}
	var name strings.Builder
	for i, c := range strings.ReplaceAll(method, "PodSandbox", "Podsandbox") {
		if unicode.IsUpper(c) && i > 0 {
			name.WriteByte('_')
		}
		name.WriteRune(unicode.ToLower(c))
	}
	return name.String(), true
}
