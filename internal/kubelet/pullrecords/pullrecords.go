// Package pullrecords keeps on the disk which images this node pulled, and whose
// credentials they were pulled with, in the upstream kubelet's folder and format:
//
//	image_manager/pulling/sha256-…   a pull of an image, by its name, has begun
//	image_manager/pulled/sha256-…    who may use an image, by the runtime's reference to it
//
// Both hold JSON of kubelet.config.k8s.io/v1beta1, ImagePullIntent and
// ImagePulledRecord, and are called by the hash of what they are about. A file of
// another version, or that is damaged, is an error to who looks for it: the image
// then has to be pulled again by everybody.
//
// All methods may be called from any goroutine.
package pullrecords

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/imagerights"
)

const (
	intentKind = "ImagePullIntent"
	recordKind = "ImagePulledRecord"
	prefix     = "sha256-"
)

// A Store is the records of one node.
type Store struct {
	pulling, pulled string // folders

	mu       sync.Mutex     // guards the files and the fields below
	inFlight map[string]int // pulls that go on, by image
	// unsure are the images of a pull that ended somehow: its note stays until
	// Tidy has seen whether the image is there.
	unsure  map[string]bool
	intents prometheus.Gauge
	records prometheus.Gauge
}

// New makes the folders in dir, the kubelet's own, and returns the store of what
// is in them. metrics may be nil.
func New(dir string, metrics prometheus.Registerer) (*Store, error) {
	s := &Store{
		pulling: filepath.Join(dir, "image_manager", "pulling"), pulled: filepath.Join(dir, "image_manager", "pulled"),
		inFlight: map[string]int{}, unsure: map[string]bool{},
		intents: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_imagemanager_ondisk_pullintents", Help: "Pulls that have begun, by what is on the disk.",
		}),
		records: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_imagemanager_ondisk_pulledrecords", Help: "Images of which it is known on the disk who may use them.",
		}),
	}
	for folder, gauge := range map[string]prometheus.Gauge{s.pulling: s.intents, s.pulled: s.records} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, fmt.Errorf("records of pulls: %w", err)
		}
		files, err := list(folder)
		if err != nil {
			return nil, fmt.Errorf("records of pulls: %w", err)
		}
		gauge.Set(float64(len(files)))
	}
	if metrics != nil {
		metrics.MustRegister(s.intents, s.records)
	}
	return s, nil
}

// Begin notes that a pull of an image, as a pod calls it, begins.
func (s *Store) Begin(image string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := os.Lstat(path(s.pulling, image)); err == nil && s.inFlight[image] == 0 {
		s.unsure[image] = true // of an earlier pull, perhaps of an agent that died
	}
	intent := &kubeletconfig.ImagePullIntent{TypeMeta: typeMeta(intentKind), Image: image}
	if err := s.writeLocked(s.pulling, image, intent); err != nil {
		return err
	}
	s.inFlight[image]++
	return nil
}

// End notes that a pull that was begun has ended. The note of it goes with the
// last pull of that image, unless of one it is not known how it ended.
func (s *Store) End(image string, known bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !known {
		s.unsure[image] = true
	}
	if s.inFlight[image]--; s.inFlight[image] > 0 {
		return nil
	}
	delete(s.inFlight, image)
	if s.unsure[image] {
		return nil
	}
	return s.removeLocked(s.pulling, image)
}

// Look returns the record of the image that the runtime calls id, nil if there is
// none, and whether this node pulled it, or is doing so: under the name image, as
// a pod has it, or under any that the runtime has for it, its names. An image that is there after a pull of which nobody knows the end
// has a record from then on, of nobody who may use it without being asked: the
// note of the pull may go.
func (s *Store) Look(image, id string, names []string) (record *kubeletconfig.ImagePulledRecord, pulled bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	record, err = s.recordLocked(id)
	if err != nil || record != nil {
		return record, true, err
	}
	begun, over, err := s.begunLocked(image, names)
	switch {
	case err != nil:
		return nil, true, err
	case over:
		return nil, true, s.writeLocked(s.pulled, id, newRecord(id))
	}
	return nil, begun, nil
}

// begunLocked reports whether there is a note of a pull of an image under any of
// its names, and whether all such pulls are over.
func (s *Store) begunLocked(image string, names []string) (begun, over bool, err error) {
	wanted := map[string]bool{imagerights.Normal(image): true}
	for _, name := range names {
		wanted[imagerights.Normal(name)] = true
	}
	files, err := list(s.pulling)
	if err != nil {
		return false, false, err
	}
	own := path(s.pulling, image)
	over = true
	for _, file := range files {
		var intent kubeletconfig.ImagePullIntent
		err := read(file, intentKind, &intent)
		if file == own { // a damaged one, too
			intent.Image = image
		} else if err != nil || !wanted[imagerights.Normal(intent.Image)] {
			continue
		}
		if begun = true; s.inFlight[intent.Image] > 0 {
			over = false
		}
	}
	return begun, begun && over, nil
}

// Add notes who may use the image that the runtime calls id, by the name that
// pods call it without tag and digest.
func (s *Store) Add(id, name string, by kubeletconfig.ImagePullCredentials) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	record, err := s.recordLocked(id)
	if err != nil || record == nil { // a damaged one says nothing that could be kept
		record = newRecord(id)
	}
	sum, changed := imagerights.Add(record.CredentialMapping[name], by)
	if !changed {
		return nil
	}
	record.LastUpdatedTime = metav1.Now()
	record.CredentialMapping[name] = sum
	return s.writeLocked(s.pulled, id, record)
}

// Tidy removes what is noted of images that are gone. images are those that the
// runtime had at a time. What an agent that died was pulling and is there now is
// recorded as pulled, with nobody who may use it without being asked.
func (s *Store) Tidy(images []*runtimeapi.Image, at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids, named := map[string]bool{}, map[string]string{}
	for _, image := range images {
		ids[image.GetId()] = true
		for _, names := range [][]string{image.GetRepoTags(), image.GetRepoDigests()} {
			for _, name := range names {
				named[name] = image.GetId()
			}
		}
	}
	return errors.Join(s.tidyIntentsLocked(named, at), s.tidyRecordsLocked(ids, at))
}

func (s *Store) tidyIntentsLocked(named map[string]string, at time.Time) error {
	files, err := list(s.pulling)
	errs := []error{err}
	for _, file := range files {
		info, err := os.Lstat(file)
		if err != nil || info.ModTime().After(at) {
			errs = append(errs, err)
			continue // newer than what is known of images
		}
		var intent kubeletconfig.ImagePullIntent
		if err := read(file, intentKind, &intent); err != nil {
			continue // it stands for a pull all the same
		}
		if s.inFlight[intent.Image] > 0 {
			continue
		}
		if id, ok := named[imagerights.Normal(intent.Image)]; ok {
			record, err := s.recordLocked(id)
			if err == nil && record == nil {
				err = s.writeLocked(s.pulled, id, newRecord(id))
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
		}
		errs = append(errs, s.removeLocked(s.pulling, intent.Image))
	}
	return errors.Join(errs...)
}

func (s *Store) tidyRecordsLocked(ids map[string]bool, at time.Time) error {
	files, err := list(s.pulled)
	errs := []error{err}
	at = at.Truncate(time.Second) // as times in records are
	for _, file := range files {
		var record kubeletconfig.ImagePulledRecord
		if err := read(file, recordKind, &record); err != nil {
			continue // whoever needs it says so
		}
		if !ids[record.ImageRef] && record.LastUpdatedTime.Time.Before(at) {
			errs = append(errs, s.removeLocked(s.pulled, record.ImageRef))
		}
	}
	return errors.Join(errs...)
}

func newRecord(id string) *kubeletconfig.ImagePulledRecord {
	return &kubeletconfig.ImagePulledRecord{
		TypeMeta: typeMeta(recordKind), LastUpdatedTime: metav1.Now(), ImageRef: id,
		CredentialMapping: map[string]kubeletconfig.ImagePullCredentials{},
	}
}

// recordLocked returns the record of an image, nil if there is none.
func (s *Store) recordLocked(id string) (*kubeletconfig.ImagePulledRecord, error) {
	var record kubeletconfig.ImagePulledRecord
	err := read(path(s.pulled, id), recordKind, &record)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case record.ImageRef != id:
		return nil, fmt.Errorf("%s is about another image, %s", path(s.pulled, id), record.ImageRef)
	}
	if record.CredentialMapping == nil {
		record.CredentialMapping = map[string]kubeletconfig.ImagePullCredentials{}
	}
	return &record, nil
}

func (s *Store) writeLocked(folder, key string, object any) error {
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	file := path(folder, key)
	_, before := os.Lstat(file)
	if err := atomicfile.Write(file, append(data, '\n'), 0o600); err != nil {
		return err
	}
	if before != nil {
		s.gauge(folder).Inc()
	}
	return nil
}

func (s *Store) removeLocked(folder, key string) error {
	if folder == s.pulling {
		delete(s.unsure, key)
	}
	err := os.Remove(path(folder, key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		s.gauge(folder).Dec()
	}
	return err
}

func (s *Store) gauge(folder string) prometheus.Gauge {
	if folder == s.pulling {
		return s.intents
	}
	return s.records
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: kubeletconfig.SchemeGroupVersion.String(), Kind: kind}
}

func path(folder, key string) string {
	return filepath.Join(folder, fmt.Sprintf("%s%x", prefix, sha256.Sum256([]byte(key))))
}

// list returns the files of records in a folder.
func list(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	var files []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && e.Type().IsRegular() {
			files = append(files, filepath.Join(folder, e.Name()))
		}
	}
	return files, err
}

// read reads a file strictly: what it does not understand might be a
// restriction.
func read(file, kind string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := decode(data, kind, into); err != nil {
		return fmt.Errorf("%s: %w (without it the image is pulled again)", file, err)
	}
	return nil
}

func decode(data []byte, kind string, into any) error {
	var head metav1.TypeMeta
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	if want := typeMeta(kind); head != want {
		return fmt.Errorf("it is a %s of %q, not a %s of %q", head.Kind, head.APIVersion, want.Kind, want.APIVersion)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}
