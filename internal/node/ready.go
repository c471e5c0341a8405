package node

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/internal/node/servicemanager"
)

// patience is how long a start may take before it says what it waits for, and
// the pause until it says so again.
const patience = 10 * time.Second

// announce says once that the node is ready for pods, and until then what keeps
// it from that. It is ready when its parts are, and the pods of every source
// were taken: what ran before is known again by then.
func (n *node) announce(ctx context.Context) error {
	waits := []<-chan struct{}{n.kubelet.Ready()}
	if n.host != nil {
		waits = append(waits, n.host.Ready())
	}
	unread, known := []chan bool{n.read}, true
	if n.readURL != nil {
		unread = append(unread, n.readURL)
	}
	tick := time.NewTicker(patience)
	defer tick.Stop()
	for len(waits)+len(unread) > 0 {
		var next <-chan struct{}
		var read <-chan bool
		if len(waits) > 0 {
			next = waits[0]
		}
		if len(unread) > 0 {
			read = unread[0]
		}
		select {
		case <-next:
			waits = waits[1:]
		case answered := <-read:
			unread, known = unread[1:], known && answered
			if len(unread) == 0 && known { // else its pods are awaited in vain
				waits = append(waits, n.kubelet.Synced())
			}
		case <-tick.C:
			n.cfg.Progress("still waiting: " + obstacle(n.report(ctx)))
		case <-ctx.Done():
			return nil
		}
	}
	close(n.ready)
	n.cfg.Ready(n.in)
	<-ctx.Done()
	return nil
}

// prepareManager makes what tells the service manager how the node is.
func (n *node) prepareManager() error {
	cfg, err := servicemanager.FromEnvironment()
	if err != nil {
		return err
	}
	cfg.Ready, cfg.Healthy, cfg.Status, cfg.Log = n.ready, n.healthy, n.oneLine, n.log.With("part", "servicemanager")
	n.manager = servicemanager.New(cfg)
	return nil
}

// healthy returns an error if the node does not do its work any more, and a new
// start may help. A runtime that hangs is not the fault of this process.
func (n *node) healthy(ctx context.Context) error {
	if err := n.kubelet.Healthy(); err != nil {
		return err
	}
	if err := n.admin.Get().AbsPath("/livez").Do(ctx).Error(); err != nil {
		return fmt.Errorf("the API is not well: %w", err)
	}
	return nil
}

// oneLine is the report for whoever has room for one line.
func (n *node) oneLine(ctx context.Context) string {
	r := n.report(ctx)
	if !r.Ready {
		return "starting: " + obstacle(r)
	}
	running := 0
	for _, p := range r.Pods {
		if p.Ready == p.Total {
			running++
		}
	}
	line := fmt.Sprintf("%d of %d pods ready", running, len(r.Pods))
	if len(r.Faults) > 0 {
		line += fmt.Sprintf(", %d things wrong: see holdfast status", len(r.Faults))
	}
	return line
}
