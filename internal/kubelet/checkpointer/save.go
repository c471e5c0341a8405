package checkpointer

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpointfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// kept is what is known of a file on the disk.
type kept struct {
	sum     [sha256.Size]byte // of the object
	edition any               // of the object when it was last compared; nil: it was not
}

// A wish is one object that is to be on the disk.
type wish struct {
	key checkpointfile.Key
	// edition is comparable, and another whenever the object is. Nil: not known.
	edition any
	// object makes what is kept; it is only called for a new edition. Nil: what is
	// on the disk, if anything, stays.
	object func() any
}

// save brings the disk up to date. Objects are written before the pods that use
// them and removed after them, so that a pod on the disk finds what it needs.
func (c *Checkpointer) save() error {
	if err := c.scan(); err != nil {
		return err
	}
	pods, seen := c.cfg.Pods()
	wishes := c.wishes(pods)
	if len(wishes) == 0 && len(c.kept) == 0 && !seen {
		return nil // a node that never had the API
	}
	if err := c.cfg.Folder.Check(); err != nil {
		return err
	}
	errs := []error{c.saveAnswer()}
	wanted := make(map[checkpointfile.Key]bool, len(wishes))
	for _, w := range wishes {
		wanted[w.key] = true
		if err := c.write(w); err != nil {
			errs = append(errs, err)
		}
	}
	if seen {
		errs = append(errs, c.removeUnwanted(wanted))
	}
	return errors.Join(errs...)
}

// scan reads, once, what is on the disk.
func (c *Checkpointer) scan() error {
	if c.scanned {
		return nil
	}
	files, err := c.cfg.Folder.Files()
	if err != nil {
		return err
	}
	for _, f := range files {
		switch {
		case f.Err != nil:
			c.strange[f.Name] = true
			c.unusable(f)
		case f.Key.Kind == checkpointfile.Answer:
			if err := json.Unmarshal(f.Object, &c.answer); err != nil {
				f.Err = fmt.Errorf("%s: %w", f.Name, err)
				c.unusable(f)
			}
		default:
			c.kept[f.Key] = kept{sum: sha256.Sum256(f.Object)}
		}
	}
	c.scanned, c.began = true, time.Now()
	return nil
}

// wishes returns what is to be on the disk, pods last.
func (c *Checkpointer) wishes(pods []*v1.Pod) []wish {
	var wishes []wish
	if node := c.cfg.Node(); node != nil {
		wishes = append(wishes, wish{nodeKey, node, func() any { return nodeForm(node) }})
	} else {
		wishes = append(wishes, wish{key: nodeKey})
	}
	wishes = append(wishes, c.objectWishes(pods)...)
	wishes = append(wishes, c.tokenWishes(pods)...)
	wishes = append(wishes, c.serviceWishes(pods)...)
	for _, pod := range pods {
		key := checkpointfile.PodKey(pod.Namespace, pod.Name, string(pod.UID))
		wishes = append(wishes, wish{key, nil, func() any { return podForm(pod) }})
	}
	return wishes
}

// objectWishes returns everything that the pods refer to. Claims name their
// PersistentVolumes, and these their CSI drivers: until all are known, those that are
// on the disk stay.
func (c *Checkpointer) objectWishes(pods []*v1.Pod) []wish {
	seen := c.cfg.Objects.Seen()
	var wishes []wish
	known, knownDrivers, done := true, true, map[podvolumes.Ref]bool{}
	add := func(ref podvolumes.Ref) {
		if done[ref] {
			return
		}
		done[ref] = true
		object, ok := seen[ref]
		switch {
		case ok && object == nil: // the API says that there is none
		case ok:
			wishes = append(wishes, wish{refKey(ref), object, func() any { return object }})
		default:
			wishes = append(wishes, wish{key: refKey(ref)})
		}
	}
	for _, pod := range pods {
		for i := range pod.Spec.Volumes {
			if source := pod.Spec.Volumes[i].CSI; source != nil {
				add(podvolumes.Ref{Kind: podvolumes.RefCSIDriver, Name: source.Driver})
			}
		}
		for _, ref := range podvolumes.Refs(pod) {
			add(ref)
			if ref.Kind != podvolumes.RefClaim {
				continue
			}
			object, ok := seen[ref]
			known = known && ok
			claim, ok := object.(*v1.PersistentVolumeClaim)
			if !ok || claim.Spec.VolumeName == "" {
				continue
			}
			volume := podvolumes.Ref{Kind: podvolumes.RefPersistentVolume, Name: claim.Spec.VolumeName}
			add(volume)
			object, ok = seen[volume]
			knownDrivers = knownDrivers && ok
			if pv, ok := object.(*v1.PersistentVolume); ok && pv.Spec.CSI != nil {
				add(podvolumes.Ref{Kind: podvolumes.RefCSIDriver, Name: pv.Spec.CSI.Driver})
			}
		}
	}
	for key := range c.kept {
		if key.Kind == checkpointfile.PersistentVolume && !known || key.Kind == checkpointfile.CSIDriver && (!known || !knownDrivers) {
			wishes = append(wishes, wish{key: key})
		}
	}
	return wishes
}

// tokenWishes returns the tokens of the pods. Those that are on the disk stay as
// long as their pod: they are asked for again only when they are due.
func (c *Checkpointer) tokenWishes(pods []*v1.Pod) []wish {
	here := make(map[string]bool, len(pods))
	for _, pod := range pods {
		here[string(pod.UID)] = true
	}
	var wishes []wish
	tokens := c.cfg.Objects.Tokens()
	for key, token := range tokens {
		if here[key.Owner()] {
			wishes = append(wishes, wish{key, token, func() any { return token }})
		}
	}
	for key := range c.kept {
		if key.Kind == checkpointfile.Token && here[key.Owner()] && tokens[key] == nil {
			wishes = append(wishes, wish{key: key})
		}
	}
	return wishes
}

// serviceWishes returns the services of the pods' namespaces.
func (c *Checkpointer) serviceWishes(pods []*v1.Pod) []wish {
	var namespaces []string
	for _, pod := range pods {
		namespaces = append(namespaces, pod.Namespace)
	}
	slices.Sort(namespaces)
	var wishes []wish
	for _, namespace := range slices.Compact(namespaces) {
		w := wish{key: servicesKey(namespace)}
		if list, edition, ok := c.cfg.Objects.SeenServices(namespace); ok {
			w.edition, w.object = edition, func() any { return servicesForm(list) }
		}
		wishes = append(wishes, w)
	}
	return wishes
}

// write writes an object if it is not the one that is on the disk.
func (c *Checkpointer) write(w wish) error {
	have, there := c.kept[w.key]
	if w.object == nil || there && w.edition != nil && have.edition == w.edition {
		return nil
	}
	data, err := json.Marshal(w.object())
	if err != nil {
		return fmt.Errorf("keep %s: %w", w.key, err)
	}
	sum := sha256.Sum256(data)
	if !there || have.sum != sum {
		if err := c.cfg.Folder.Write(w.key, data); err != nil {
			return fmt.Errorf("keep %s: %w", w.key, err)
		}
		delete(c.strange, w.key.File())
		c.usable(w.key.File())
	}
	c.kept[w.key] = kept{sum, w.edition}
	return nil
}

// removeUnwanted removes what nobody uses, and what cannot be read: all that is
// used is known by now. Pods go first.
func (c *Checkpointer) removeUnwanted(wanted map[checkpointfile.Key]bool) error {
	var unwanted []checkpointfile.Key
	keep := map[string]bool{answerKey.File(): true}
	for key := range wanted {
		keep[key.File()] = true
	}
	for key := range c.kept {
		if !wanted[key] {
			unwanted = append(unwanted, key)
		}
	}
	slices.SortFunc(unwanted, func(a, b checkpointfile.Key) int { return rank(a) - rank(b) })
	var errs []error
	for _, key := range unwanted {
		if err := c.cfg.Folder.Remove(key.File()); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(c.kept, key)
		c.usable(key.File())
	}
	for name := range c.strange {
		if keep[name] {
			continue // about to be written, once the API has told what it should hold
		}
		if err := c.cfg.Folder.Remove(name); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(c.strange, name)
		c.usable(name)
	}
	return errors.Join(errs...)
}

// rank orders removals.
func rank(key checkpointfile.Key) int {
	if key.Kind == checkpointfile.Pod {
		return 0
	}
	return 1
}

// An answer is when the API last answered.
type answer struct {
	Answered time.Time `json:"answered"`
	// Offline is how long the node has run since then without an answer.
	Offline time.Duration `json:"offlineNanoseconds,omitempty"`
}

// saveAnswer keeps the time of the last answer, now and then.
func (c *Checkpointer) saveAnswer() error {
	now := time.Now()
	next := answer{Answered: c.cfg.Answered()}
	switch silent := now.Sub(next.Answered); {
	case next.Answered.IsZero(), silent > c.cfg.AnswerPeriod: // away
		ran := now.Sub(c.began)
		if ran < c.cfg.AnswerPeriod || c.answer.Answered.IsZero() && next.Answered.IsZero() {
			return nil
		}
		if next.Answered.IsZero() {
			next.Answered = c.answer.Answered
		}
		next.Offline = c.answer.Offline + ran
	case c.answer.Answered.IsZero(), c.answer.Offline > 0, next.Answered.Before(c.answer.Answered):
	case next.Answered.Sub(c.answer.Answered) < c.cfg.AnswerPeriod:
		c.began = now
		return nil
	}
	data, err := json.Marshal(next)
	if err == nil {
		err = c.cfg.Folder.Write(answerKey, data)
	}
	if err != nil {
		return fmt.Errorf("keep when the API last answered: %w", err)
	}
	c.usable(answerKey.File())
	c.answer, c.began = next, now
	return nil
}
