package crifake

import (
	"context"
	"path"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A Fault makes calls of one operation go wrong. The first fault that matches
// a call counts.
type Fault struct {
	Op    string             // such as "CreateContainer"; required
	Match func(req any) bool // which requests, a *runtimeapi.CreateContainerRequest for example; nil: all
	Times int                // how many calls; 0: all
	Delay time.Duration      // before the call is answered, well or not
	Hang  bool               // no answer until the caller gives up or the fault is taken back
	Err   error              // the answer; one that is no gRPC status gets the code Unknown
}

// faults is the faults in force, and the calls that were made.
type faults struct {
	mu      sync.Mutex // guards the fields below
	active  []*Fault
	calls   []string
	changed chan struct{} // closed and replaced when a fault is taken back
}

// Inject puts a fault in force and returns the function that takes it back;
// calls that hang by it go on then.
func (f *Fake) Inject(fault Fault) (takeBack func()) {
	f.faults.mu.Lock()
	defer f.faults.mu.Unlock()
	added := &fault
	f.faults.active = append(f.faults.active, added)
	return func() { f.faults.remove(func(other *Fault) bool { return other == added }) }
}

// Fail makes every call of an operation fail with err until Clear.
func (f *Fake) Fail(op string, err error) { f.Inject(Fault{Op: op, Err: err}) }

// Hang makes every call of an operation hang until Clear.
func (f *Fake) Hang(op string) { f.Inject(Fault{Op: op, Hang: true}) }

// Delay makes every call of an operation take at least d, until Clear.
func (f *Fake) Delay(op string, d time.Duration) { f.Inject(Fault{Op: op, Delay: d}) }

// Clear takes back every fault of an operation.
func (f *Fake) Clear(op string) {
	f.faults.remove(func(fault *Fault) bool { return fault.Op == op })
}

// Calls returns the names of the operations called so far, in order, those
// that went wrong included. With names, only those.
func (f *Fake) Calls(ops ...string) []string {
	f.faults.mu.Lock()
	defer f.faults.mu.Unlock()
	calls := slices.Clone(f.faults.calls)
	if len(ops) == 0 {
		return calls
	}
	return slices.DeleteFunc(calls, func(op string) bool { return !slices.Contains(ops, op) })
}

// ForgetCalls empties what Calls returns.
func (f *Fake) ForgetCalls() {
	f.faults.mu.Lock()
	defer f.faults.mu.Unlock()
	f.faults.calls = nil
}

func (f *faults) remove(which func(*Fault) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active = slices.DeleteFunc(f.active, which)
	close(f.changed)
	f.changed = make(chan struct{})
}

// find returns the fault of a call, if any, and counts it.
func (f *faults) find(op string, req any) (fault Fault, changed <-chan struct{}, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, a := range f.active {
		if a.Op != op || a.Match != nil && !a.Match(req) {
			continue
		}
		fault = *a
		if a.Times == 1 {
			f.active = slices.Delete(f.active, i, i+1)
		} else if a.Times > 1 {
			a.Times--
		}
		return fault, f.changed, true
	}
	return Fault{}, nil, false
}

func (f *faults) called(op string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, op)
}

// before is done before a call: it waits and fails as the faults say.
func (f *faults) before(ctx context.Context, op string, req any) error {
	f.called(op)
	for {
		fault, changed, ok := f.find(op, req)
		if !ok {
			return nil
		}
		if fault.Hang {
			select {
			case <-ctx.Done():
				return status.FromContextError(ctx.Err()).Err()
			case <-changed:
				continue // is there still a fault?
			}
		}
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-time.After(fault.Delay):
		}
		if fault.Err == nil {
			return nil
		}
		if _, ok := status.FromError(fault.Err); ok {
			return fault.Err
		}
		return status.Error(codes.Unknown, fault.Err.Error())
	}
}

func (f *faults) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := f.before(ctx, path.Base(info.FullMethod), req); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (f *faults) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := f.before(stream.Context(), path.Base(info.FullMethod), nil); err != nil {
		return err
	}
	return next(srv, stream)
}
