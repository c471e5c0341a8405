package cri

import (
	"context"
	"fmt"
	"slices"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemoveContainer removes a container, killing it if it runs. A container that
// is not there is no error.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	remove := func() error {
		_, err := r.runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
		return err
	}
	err := remove()
	if status.Code(err) == codes.FailedPrecondition {
		switch errTask := r.deleteTask(ctx, id); {
		case errTask == nil:
			err = remove()
		case status.Code(errTask) != codes.Unimplemented: // it is containerd
			return fmt.Errorf("remove container %q: %w; delete its task: %w", id, translate(err), translate(errTask))
		}
	}
	if err := gone(translate(err)); err != nil {
		return fmt.Errorf("remove container %q: %w", id, err)
	}
	return nil
}

// containerd's own service of tasks, on the socket of its CRI, and the namespace
// in which its CRI keeps them.
const (
	methodKill   = "/containerd.services.tasks.v1.Tasks/Kill"
	methodDelete = "/containerd.services.tasks.v1.Tasks/Delete"
	taskSpace    = "k8s.io"
)

// deleteTask removes the task of a container that containerd's CRI knows as one
// that does not run. A start that is called off at the wrong moment, as the agent
// dies, leaves such a task, made and not begun, and neither the container nor its
// sandbox can be removed before it. No call of CRI gets rid of it. The error is
// gRPC's: Unimplemented if the runtime is not containerd.
func (r *Runtime) deleteTask(ctx context.Context, id string) error {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", taskSpace)
	task := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), id)
	kill := protowire.AppendVarint(protowire.AppendTag(slices.Clone(task), 3, protowire.VarintType), uint64(syscall.SIGKILL))
	call := func(ctx context.Context, method string, request []byte) error {
		err := r.conn.Invoke(ctx, method, request, nil, grpc.ForceCodec(encoded{}))
		if status.Code(err) == codes.NotFound { // gone
			return nil
		}
		return err
	}
	if err := call(ctx, methodKill, kill); err != nil {
		return err
	}
	return settle(ctx, func(ctx context.Context) (bool, error) {
		err := call(ctx, methodDelete, task)
		if status.Code(err) == codes.FailedPrecondition { // its process has not ended yet
			return true, nil
		}
		return false, err
	})
}

// encoded takes requests that are encoded already, and looks at no answer. Two small
// messages are not worth the module that has them.
type encoded struct{}

func (encoded) Marshal(v any) ([]byte, error) {
	data, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("message of type %T is not encoded", v)
	}
	return data, nil
}

func (encoded) Unmarshal([]byte, any) error { return nil }

func (encoded) Name() string { return "proto" }
