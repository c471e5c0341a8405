package podlife

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/bench/procfs"
)

// Sizes are how many pods a node has, in turn, when its agent is looked at. The last
// is as many as a node takes.
var Sizes = [...]int{0, 10, 50, 110}

const (
	// settle is how long after the last pod runs before a minute counts.
	settle = 20 * time.Second
	// idle is how long the agent is watched while nothing happens.
	idle = time.Minute
	// restarts is how often the agent is started anew, with restartSize pods.
	restarts, restartSize = 5, 50
)

// A Footprint is what an agent takes of the machine while nothing happens.
type Footprint struct {
	Idle    [len(Sizes)]procfs.Usage // in the end of the minute; CPU: of that minute
	Restart Series                   // start of the agent → a pod runs that was bound before
}

// MeasureFootprint fills a node step by step. stop ends its agent, and start starts it
// and returns its process ID. The node has no pods afterwards.
func MeasureFootprint(ctx context.Context, n Node, stop func() error, start func() (int, error)) (*Footprint, error) {
	w, err := follow(ctx, n.Client)
	if err != nil {
		return nil, err
	}
	defer func() { w.Stop() }() // the one that is open then
	f := &Footprint{}
	var pods []string
	for i, size := range Sizes {
		n.Say("%d pods, and an idle minute", size)
		if more := crowd(fmt.Sprintf("idle-%d", i), size-len(pods)); len(more) > 0 {
			if _, err := n.start(ctx, w, more); err != nil {
				return nil, err
			}
			pods = append(pods, more...)
		}
		if f.Idle[i], err = idleMinute(ctx, n.Agent); err != nil {
			return nil, err
		}
		if size != restartSize {
			continue
		}
		for k := range restarts {
			n.Say("restart %d of %d", k+1, restarts)
			if err := stop(); err != nil {
				return nil, err
			}
			took, err := n.comeBack(ctx, w, fmt.Sprintf("after-restart-%d", k), start)
			if err != nil {
				return nil, err
			}
			f.Restart = append(f.Restart, took)
		}
	}
	_, err = n.remove(ctx, w, pods)
	return f, err
}

// comeBack binds a pod while no agent runs, and returns how long after the start of
// the next one the API says that the pod runs.
func (n *Node) comeBack(ctx context.Context, w *follower, pod string, start func() (int, error)) (time.Duration, error) {
	if _, err := n.create(ctx, []string{pod}); err != nil {
		return 0, err
	}
	began := time.Now()
	pid, err := start()
	if err != nil {
		return 0, err
	}
	n.Agent = pid
	ended, err := w.await(ctx, []string{pod}, "Running")
	if err != nil {
		return 0, err
	}
	_, err = n.remove(ctx, w, []string{pod})
	return ended.Sub(began), err
}

// idleMinute waits until the agent has settled, and returns what it uses then.
func idleMinute(ctx context.Context, agent int) (u procfs.Usage, err error) {
	if err := pause(ctx, settle); err != nil {
		return u, err
	}
	before, err := procfs.ReadUsage(agent)
	if err != nil {
		return u, err
	}
	if err := pause(ctx, idle); err != nil {
		return u, err
	}
	u, err = procfs.ReadUsage(agent)
	u.CPU -= before.CPU
	u.Written -= before.Written
	return u, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// FootprintTable is what was measured, for people: ours alone, or beside upstream.
func FootprintTable(ours, upstream *Footprint) string {
	t := newTable(ours, upstream)
	for i, size := range Sizes {
		t.mib(fmt.Sprintf("resident memory, %d pods", size), func(f *Footprint) int64 { return f.Idle[i].RSS })
	}
	for i, size := range Sizes {
		t.mib(fmt.Sprintf("of that anonymous, %d pods", size), func(f *Footprint) int64 { return f.Idle[i].Anon })
	}
	for i, size := range Sizes {
		t.ms(fmt.Sprintf("processor time of an idle minute, %d pods", size), func(f *Footprint) time.Duration { return f.Idle[i].CPU })
	}
	t.ms(fmt.Sprintf("start of the agent → a waiting pod runs, %d others, median of %d", restartSize, restarts),
		func(f *Footprint) time.Duration { return f.Restart.Quantile(0.5) })
	return t.String()
}
