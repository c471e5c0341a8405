package desired

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// pod makes a pod `name` or `name/uid`; without a UID, that is its name.
func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	name, uid, ok := strings.Cut(name, "/")
	if !ok {
		uid = name
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func image(ref string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Image = ref }
}

func annotation(name, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, name, value) }
}

func namespace(ns string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Namespace = ns } }

func label(p *corev1.Pod)   { p.Labels = map[string]string{"a": "b"} }
func running(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }
func deleted(p *corev1.Pod) { t := metav1.NewTime(now); p.DeletionTimestamp = &t }
func grace(s int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.DeletionGracePeriodSeconds = &s }
}

func absent(p *corev1.Pod) {
	p.Labels, p.Annotations, p.Spec.Volumes, p.Status.Conditions = nil, nil, nil, nil
}

func empty(p *corev1.Pod) {
	p.Labels, p.Annotations = map[string]string{}, map[string]string{}
	p.Spec.Volumes, p.Status.Conditions = []corev1.Volume{}, []corev1.PodCondition{}
}

func irrelevant(p *corev1.Pod) {
	p.ResourceVersion = "7"
	p.Finalizers = []string{"x.example/y"}
	p.OwnerReferences = []metav1.OwnerReference{{Name: "o"}}
	p.Generation = 3
}

// show writes updates as `file ADD a b`.
func show(updates []Update) []string {
	var lines []string
	for _, u := range updates {
		words := []string{u.Source, u.Op.String()}
		for _, p := range u.Pods {
			word := p.Name
			if string(p.UID) != p.Name {
				word += "/" + string(p.UID)
			}
			words = append(words, word)
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return lines
}

// full, delta and restored make deliveries.
func full(source string, pods ...*corev1.Pod) Delivery { return Delivery{Source: source, Pods: pods} }

func delta(source string, gone []types.UID, pods ...*corev1.Pod) Delivery {
	return Delivery{Source: source, Kind: Delta, Pods: pods, Gone: gone}
}

func restored(source string, pods ...*corev1.Pod) Delivery {
	return Delivery{Source: source, Kind: Restored, Pods: pods}
}

func gone(uids ...types.UID) []types.UID { return uids }
