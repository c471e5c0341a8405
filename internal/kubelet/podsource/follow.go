package podsource

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/watchlist"

	"github.com/holdfast-dev/holdfast/internal/retry"
)

const (
	// firstPause and longestPause are between two questions that fail.
	firstPause, longestPause = 200 * time.Millisecond, 10 * time.Second
	// answerLimit is how long the server may take for the whole set.
	answerLimit = time.Minute
	// watchTime is how long a watch lasts at least, as upstream's: at most twice
	// as long.
	watchTime = 5 * time.Minute
	// shortWatch is how long a watch without news must last to be a sign of health:
	// client-go makes one that ends at once of some broken connections.
	shortWatch = time.Second
	// mostBroken is how often in a row a watch may break at the same place before
	// the whole set is asked for: it may hold what cannot be read.
	mostBroken = 3
)

// errSlow is returned when the whole set was not there within answerLimit.
var errSlow = fmt.Errorf("no full answer within %v", answerLimit)

// errShort is returned by a watch that ended at once.
var errShort = errors.New("the server ends each watch at once")

// errBroken is returned by a watch that ended with an error of its stream.
var errBroken = errors.New("the watch broke")

// A listener hears whether the server answers.
type listener interface {
	answered()
	silent(err error)
}

// A follower keeps pending up to date with the server's pods of one node.
//
// It is what client-go's Reflector is, with one difference: only the server's own
// word that it has forgotten makes it ask for everything again. A connection
// that is refused, times out or breaks, as on a line that comes and goes, does
// not, however long.
type follower struct {
	client   typedcorev1.PodInterface
	selector string
	pods     *pending
	listener listener

	// follow alone uses what is below.

	// streams is true as long as streaming lists are worth a try.
	streams bool
	// version is what the last answer stands for; empty: the whole set is to be
	// asked for.
	version string
	broken  int // watches in a row that broke without news
}

func newFollower(client kubernetes.Interface, node string, pods *pending, l listener) *follower {
	return &follower{
		client:   client.CoreV1().Pods(metav1.NamespaceAll),
		selector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
		pods:     pods, listener: l,
		streams: !watchlist.DoesClientNotSupportWatchListSemantics(client),
	}
}

// follow asks again and again until ctx is done, with a growing pause while that
// fails. A third of each pause is chance, so that the nodes of a cluster do not
// come all at once.
func (f *follower) follow(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		err := f.ask(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
			continue
		case forgotten(err) && f.version != "":
			f.version = "" // and no pause: the server is well
			continue
		}
		f.listener.silent(err)
		failures++
		pause := retry.Pause(failures, firstPause, longestPause)
		if !retry.Sleep(ctx, pause-rand.N(pause/3)) {
			return
		}
	}
}

// ask has the whole set if that is needed, and then watches. It returns nil when
// the server has ended the watch.
func (f *follower) ask(ctx context.Context) error {
	if f.version != "" {
		return f.watch(ctx)
	}
	if f.streams {
		whole, err := f.stream(ctx)
		if whole || !declined(err) {
			return err
		}
		f.streams = !errors.Is(err, errSlow)
	}
	if err := f.list(ctx); err != nil {
		return err
	}
	return f.watch(ctx)
}

// list asks for the whole set in one answer, as it is in the store: a cache of
// the server's might be old enough to lack a pod that runs here.
func (f *follower) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerLimit, errSlow)
	defer cancel()
	list, err := f.client.List(ctx, metav1.ListOptions{FieldSelector: f.selector})
	if err != nil {
		return because(ctx, err)
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i, pod := range list.Items { // a copy: the list is not kept
		pods[i] = trim(&pod)
	}
	f.accept(pods, list.ResourceVersion)
	return nil
}

// stream asks for the whole set as the beginning of a watch, and goes on with
// it. It reports whether it had the whole set, and how the watch ended.
func (f *follower) stream(ctx context.Context) (whole bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slow := time.AfterFunc(answerLimit, func() { cancel(errSlow) })
	defer slow.Stop()
	opts := f.options()
	opts.SendInitialEvents, opts.ResourceVersionMatch = new(true), metav1.ResourceVersionMatchNotOlderThan
	w, err := f.client.Watch(ctx, opts)
	if err != nil {
		return false, because(ctx, err)
	}
	defer w.Stop()
	var pods []*corev1.Pod
	for {
		event, err := nextEvent(ctx, w, nil)
		if err != nil {
			return false, fmt.Errorf("read the whole set: %w", err)
		}
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return false, fmt.Errorf("%w: it sent a %T", errBroken, event.Object)
		}
		if event.Type == watch.Added {
			pods = append(pods, trim(pod))
		}
		if event.Type == watch.Bookmark && pod.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
			slow.Stop()
			f.accept(pods, pod.ResourceVersion)
			return true, f.read(ctx, w)
		}
	}
}

// watch goes on from the version of the last answer.
func (f *follower) watch(ctx context.Context) error {
	opts := f.options()
	opts.ResourceVersion = f.version
	w, err := f.client.Watch(ctx, opts)
	if err != nil {
		return err
	}
	defer w.Stop()
	return f.read(ctx, w)
}

func (f *follower) options() metav1.ListOptions {
	seconds := int64((watchTime + rand.N(watchTime)).Seconds())
	return metav1.ListOptions{FieldSelector: f.selector, AllowWatchBookmarks: true, TimeoutSeconds: &seconds}
}

// read takes what a watch says until it ends.
func (f *follower) read(ctx context.Context, w watch.Interface) error {
	long := time.NewTimer(shortWatch)
	defer long.Stop()
	for healthy := false; ; {
		event, err := nextEvent(ctx, w, long.C)
		switch {
		case errors.Is(err, errQuiet):
			healthy = true
			f.listener.answered()
			continue
		case errors.Is(err, errEnded) && !healthy:
			return errShort
		case errors.Is(err, errEnded):
			return nil
		case err != nil:
			return f.broke(err)
		}
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return f.broke(fmt.Errorf("%w: it sent a %T", errBroken, event.Object))
		}
		healthy, f.version, f.broken = true, pod.ResourceVersion, 0
		f.listener.answered() // first: who hears of the pod finds no outage
		switch event.Type {
		case watch.Added, watch.Modified:
			f.pods.set(trim(pod))
		case watch.Deleted:
			f.pods.remove(pod.UID)
		default: // a bookmark, which is its version
		}
	}
}

// broke notes that a watch has broken, and has the whole set asked for where
// going on does not get further.
func (f *follower) broke(err error) error {
	if f.broken++; f.broken >= mostBroken {
		f.version, f.broken = "", 0
	}
	return err
}

func (f *follower) accept(pods []*corev1.Pod, version string) {
	f.version, f.broken = version, 0
	f.listener.answered()
	f.pods.replace(pods)
}

// errEnded is returned by nextEvent when the server has ended the watch, errQuiet
// when nothing was said until then.
var (
	errEnded = errors.New("the watch ended")
	errQuiet = errors.New("nothing was said")
)

// nextEvent waits for an event that is none of an error, or for quiet.
func nextEvent(ctx context.Context, w watch.Interface, quiet <-chan time.Time) (watch.Event, error) {
	select {
	case <-ctx.Done():
		return watch.Event{}, context.Cause(ctx)
	case <-quiet:
		return watch.Event{}, errQuiet
	case event, ok := <-w.ResultChan():
		switch {
		case !ok && ctx.Err() != nil:
			return event, context.Cause(ctx)
		case !ok:
			return event, errEnded
		case event.Type == watch.Error:
			return event, fmt.Errorf("%w: %w", errBroken, apierrors.FromObject(event.Object))
		}
		return event, nil
	}
}

// because returns why a question failed: ctx knows more of its own end.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// forgotten reports whether the server no longer knows what came after a version,
// or does not know that version at all, as after its store was restored.
func forgotten(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// declined reports whether a server that answers does not give the whole set as
// a stream, or not within the time: older ones do not know it.
func declined(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return errors.Is(err, errSlow)
	}
	switch status.ErrStatus.Code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return false // nor would it give a list
	default:
		return true
	}
}

// trim takes from a pod what is of no use here and much of its size.
func trim(pod *corev1.Pod) *corev1.Pod {
	pod.ManagedFields = nil
	return pod
}
