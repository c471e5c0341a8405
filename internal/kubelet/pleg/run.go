package pleg

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// distrust is how long a missed event makes lists as frequent as without a
// stream.
const distrust = time.Minute

// A loop is the state of Run, which no other goroutine touches.
type loop struct {
	*Generator
	slots  *slots
	quiet  quiet
	out    outbox
	stream streamState

	listing     bool
	listed      bool      // the last list succeeded
	number      int       // of good lists until now
	listBegan   time.Time // of the last list, good or not
	listEnded   time.Time
	distrustTil time.Time
	slow        time.Duration // from a list to the next while the stream is relied on
	slowly      bool          // the last list was waited for as long as that
	notBefore   time.Time     // slow lists do not come earlier

	lists       chan listAnswer    // unbuffered, as the next one
	inspections chan inspectAnswer // the loop outlives who sends here, or their ctx is done
}

type listAnswer struct {
	pods  []observed.Pod
	err   error
	began time.Time
}

type inspectAnswer struct {
	slot   *slot
	status *observed.Status
	err    error
	began  time.Time
}

// Run watches the runtime until ctx is done, and returns nil when everything
// it started has ended. It is called once.
func (g *Generator) Run(ctx context.Context) error {
	var calls sync.WaitGroup
	defer calls.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	calls.Go(func() { g.listen(ctx) })

	l := &loop{
		Generator:   g,
		slots:       newSlots(g.cfg.Inspections),
		quiet:       quiet{},
		listed:      true, // so that a first failure is logged
		slow:        g.cfg.SlowPeriod,
		lists:       make(chan listAnswer),
		inspections: make(chan inspectAnswer),
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(l.start(ctx, &calls))
		events, next := l.out.head(g.events)
		select {
		case <-ctx.Done():
			return nil
		case events <- next:
			l.out.pop()
		case <-g.inbox.wake:
			l.readInbox()
		case answer := <-l.lists:
			l.takeList(answer)
		case answer := <-l.inspections:
			l.takeInspection(answer)
		case <-timer.C:
		}
	}
}

// start starts every call whose time has come and returns how long to sleep
// when nothing else happens.
func (l *loop) start(ctx context.Context, calls *sync.WaitGroup) time.Duration {
	now := time.Now()
	sleep := time.Hour
	if due := l.nextList(now); !l.listing && !due.After(now) {
		l.startList(ctx, calls, now)
	} else if !l.listing {
		sleep = due.Sub(now)
	}
	if retry := l.slots.retry(now); !retry.IsZero() {
		sleep = min(sleep, retry.Sub(now))
	}
	due, next := l.quiet.over(now)
	for _, uid := range due {
		l.slots.mark(l.slots.get(uid))
	}
	if !next.IsZero() {
		sleep = min(sleep, next.Sub(now))
	}
	for p := l.slots.take(); p != nil; p = l.slots.take() {
		l.startInspection(ctx, calls, p)
	}
	return sleep
}

// nextList returns when the next list is due.
func (l *loop) nextList(now time.Time) time.Time {
	if !l.relies(now) {
		return l.listEnded.Add(l.cfg.Period)
	}
	if due := l.listEnded.Add(l.slow); due.After(l.notBefore) {
		return due
	}
	return l.notBefore
}

// quicken makes lists as frequent as when the stream was new: something
// happens, and that is when an event may be missing. It brings no list at once.
func (l *loop) quicken(now time.Time) {
	if l.slow == l.cfg.SlowPeriod {
		return
	}
	l.notBefore = l.nextList(now)
	if soon := now.Add(l.cfg.SlowPeriod); soon.Before(l.notBefore) {
		l.notBefore = soon
	}
	l.slow = l.cfg.SlowPeriod
}

// relies reports whether lists are slow: there is a stream that can be relied
// on, and a list began since then.
func (l *loop) relies(now time.Time) bool {
	reliable := l.reliableSince(now)
	return !reliable.IsZero() && l.listed && l.listBegan.After(reliable) && now.After(l.distrustTil)
}

// reliableSince returns the moment from which on the event stream tells of
// every change, as far as can be known, or zero. A stream says nothing when it
// begins, so it counts from its first event, or when it has lasted for a while.
func (l *loop) reliableSince(now time.Time) time.Time {
	settled := l.stream.opened.Add(2 * l.cfg.Period)
	switch {
	case l.stream.opened.IsZero():
		return time.Time{}
	case !l.stream.heard.IsZero() && l.stream.heard.Before(settled):
		return l.stream.heard
	case settled.Before(now):
		return settled
	default:
		return time.Time{}
	}
}

func (l *loop) startList(ctx context.Context, calls *sync.WaitGroup, now time.Time) {
	if !l.listBegan.IsZero() {
		l.metrics.listInterval.Observe(now.Sub(l.listBegan).Seconds())
	}
	l.slowly = l.relies(now)
	l.listing, l.listBegan = true, now
	l.health.began(call{name: listCall}, now)
	calls.Go(func() {
		listCtx, cancel := context.WithTimeout(ctx, l.cfg.Threshold)
		defer cancel()
		pods, err := l.cfg.Runtime.Pods(listCtx)
		if ctx.Err() != nil {
			return // not an answer
		}
		select {
		case l.lists <- listAnswer{pods, err, now}:
		case <-ctx.Done():
		}
	})
}

func (l *loop) startInspection(ctx context.Context, calls *sync.WaitGroup, p *slot) {
	uid, began := p.uid, time.Now()
	l.health.began(call{inspectCall, uid}, began)
	calls.Go(func() {
		inspectCtx, cancel := context.WithTimeout(ctx, l.cfg.InspectTimeout)
		defer cancel()
		status, err := l.cfg.Runtime.Inspect(inspectCtx, uid)
		if ctx.Err() != nil {
			return // not an answer
		}
		select {
		case l.inspections <- inspectAnswer{p, status, err, began}:
		case <-ctx.Done():
		}
	})
}

func (l *loop) readInbox() {
	in := l.inbox.empty()
	now := time.Now()
	if in.stream.broke && !l.reliableSince(now).IsZero() {
		l.listEnded = l.listEnded.Add(-l.cfg.Period) // list at once: events may be lost
		l.slow = l.cfg.SlowPeriod
	}
	l.stream = in.stream
	for uid := range in.quiet {
		l.quiet.begin(uid, now.Add(l.cfg.Quiet))
	}
	for uid, m := range in.marks {
		p := l.slots.byUID[uid]
		if m.told && p != nil {
			p.heard()
		}
		switch {
		case m.asked:
			l.quiet.end(uid)
			if in.quiet[uid] { // it began after that
				l.quiet.begin(uid, now.Add(l.cfg.Quiet))
			}
		case l.quiet.told(uid, now):
			continue
		}
		l.slots.mark(l.slots.get(uid))
	}
	if len(in.strangers) > 0 {
		l.markOwners(in.strangers, now)
	}
}

// markOwners marks the pods that have one of the sandboxes or containers. Any
// that nobody has is new, and the event of its sandbox will come or has come,
// or is gone.
func (l *loop) markOwners(ids map[string]struct{}, now time.Time) {
	for _, p := range l.slots.byUID {
		if slices.ContainsFunc(p.seen, func(r recorded) bool { _, ok := ids[r.id]; return ok }) {
			p.heard()
			if !l.quiet.told(p.uid, now) {
				l.slots.mark(p)
			}
		}
	}
}

func (l *loop) takeList(answer listAnswer) {
	now := time.Now()
	l.listing, l.listEnded = false, now
	l.health.ended(call{name: listCall})
	l.metrics.listTime.Observe(now.Sub(answer.began).Seconds())
	if answer.err != nil {
		if l.listed {
			l.log.Warn("runtime cannot list its pods; trying again", "err", answer.err)
		}
		l.listed = false
		l.health.setUnlisted(answer.began)
		return
	}
	if !l.listed {
		l.log.Info("runtime lists its pods again")
	}
	l.listed = true
	l.metrics.lastSeen.Set(float64(now.Unix()))
	if l.slowly {
		l.slow = min(2*l.slow, l.cfg.IdlePeriod)
	}

	l.number++
	for i := range answer.pods {
		p := l.slots.get(answer.pods[i].UID)
		p.listed = l.number
		l.compare(p, &answer.pods[i], answer.began)
	}
	for _, p := range l.slots.byUID {
		if p.unheard {
			l.missedEvent(p)
		}
		if p.listed != l.number {
			l.absent(p, answer.began)
		}
	}
	l.health.setListed(answer.began, len(answer.pods))
	l.cfg.Cache.UpdateTime(answer.began) // who changed is on hold
}

// compare marks a pod that a list, begun at a moment, shows changed since its
// last inspection.
func (l *loop) compare(p *slot, pod *observed.Pod, began time.Time) {
	if p.askedAt.After(began) {
		return // what we know is newer
	}
	if p.seen != nil && p.seen.matches(pod) {
		return
	}
	l.known.put(*pod)
	if p.failures > 0 && !p.busy {
		return // will be asked at its retry time
	}
	if !p.busy && !p.due && !l.quiet.waits(p.uid) && !l.reliableSince(began).IsZero() {
		p.byList = true
		l.slow = l.cfg.SlowPeriod // until it is known whether the event was late or missing
	}
	l.cfg.Cache.Hold(pod.UID, began)
	l.slots.mark(p)
}

// absent deals with a slot whose pod a list, begun at a moment, does not show.
func (l *loop) absent(p *slot, began time.Time) {
	switch {
	case p.askedAt.After(began):
	case p.busy || p.due || l.quiet.waits(p.uid):
		l.slots.mark(p) // the inspection will tell
	default:
		if p.told && !l.reliableSince(began).IsZero() {
			l.missedEvent(p)
		}
		l.gone(p, began)
	}
}

func (l *loop) takeInspection(answer inspectAnswer) {
	p, now := answer.slot, time.Now()
	l.health.ended(call{inspectCall, p.uid})
	l.metrics.inspectTime.Observe(now.Sub(answer.began).Seconds())
	failedBefore := p.failures > 0
	l.slots.answered(p, answer.err, answer.began, now)
	l.health.setFailing(p.uid, p.failedAt)
	if answer.err != nil {
		if !failedBefore {
			l.log.Warn("pod cannot be inspected; trying again", "podUID", p.uid, "err", answer.err)
		}
		l.cfg.Cache.Set(p.uid, nil, answer.err, answer.began)
		return
	}
	if failedBefore {
		l.log.Info("pod can be inspected again", "podUID", p.uid)
	}
	pod := podOf(answer.status)
	if len(pod.Sandboxes)+len(pod.Containers) == 0 {
		l.gone(p, answer.began)
		return
	}
	changed := p.seen == nil || !p.seen.matches(&pod)
	if changed {
		p.unheard = p.unheard || p.byList
		p.seen = recordOf(&pod)
		l.known.put(pod)
	}
	p.byList = false
	l.cfg.Cache.Set(p.uid, l.keepIPs(answer.status), nil, answer.began)
	if changed || failedBefore {
		l.quicken(now)
		p.told = true
		l.out.push(observed.Event{UID: p.uid, Kind: observed.PodChanged})
	}
}

// gone records that at a moment the runtime had nothing of the pod.
func (l *loop) gone(p *slot, at time.Time) {
	l.cfg.Cache.Delete(p.uid, at)
	l.health.setFailing(p.uid, time.Time{})
	l.known.drop(p.uid)
	if p.told {
		l.quicken(time.Now())
		l.out.push(observed.Event{UID: p.uid, Kind: observed.PodGone})
	}
	p.seen, p.told = nil, false
	p.heard()
	if !p.due && !p.busy {
		l.slots.drop(p)
	}
}

// missedEvent notes that the event stream did not tell of a change that a list
// found.
func (l *loop) missedEvent(p *slot) {
	p.heard()
	l.metrics.missed.Inc()
	l.distrustTil, l.slow = time.Now().Add(distrust), l.cfg.SlowPeriod
	l.log.Debug("event stream did not tell of a change; listing more often for a while", "podUID", p.uid)
}

// keepIPs returns a status with the addresses from before, if it has none
// because its sandbox does not run any more: upstream shows them until the pod
// is gone.
func (l *loop) keepIPs(s *observed.Status) *observed.Status {
	if len(s.IPs) > 0 || s.ReadySandbox() != nil {
		return s
	}
	old, _ := l.cfg.Cache.Get(s.UID) // the error of an inspection in between does not matter here
	kept := *s
	kept.IPs = old.IPs
	return &kept
}

// An outbox holds the events that nobody has received yet, one a pod.
type outbox struct {
	order []types.UID
	kinds map[types.UID]observed.EventKind
}

func (o *outbox) push(e observed.Event) {
	if o.kinds == nil {
		o.kinds = map[types.UID]observed.EventKind{}
	}
	if _, ok := o.kinds[e.UID]; !ok {
		o.order = append(o.order, e.UID)
	}
	o.kinds[e.UID] = e.Kind
}

// head returns the oldest event and the channel to send it on: nil, on which
// nothing is ever sent, if there is no event.
func (o *outbox) head(events chan<- observed.Event) (chan<- observed.Event, observed.Event) {
	if len(o.order) == 0 {
		return nil, observed.Event{}
	}
	uid := o.order[0]
	return events, observed.Event{UID: uid, Kind: o.kinds[uid]}
}

func (o *outbox) pop() {
	delete(o.kinds, o.order[0])
	o.order = o.order[1:]
}
