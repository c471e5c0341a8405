package manifestdir

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/desired"
)

// act does one thing at random.
func (w *podWorld) act() {
	name := pick(w, filePaths)
	switch w.rnd.IntN(19) {
	case 0, 1, 2:
		w.write(name, w.some(fileNames))
	case 3:
		w.remove(name)
	case 4:
		w.spoil(name)
	case 5, 6:
		w.rename(name, pick(w, filePaths))
	case 7:
		w.touch(name)
	case 8:
		w.saveInPlace(name)
	case 9:
		w.moveFolder()
	case 10:
		sick := pick(w, append([]string{"sub"}, filePaths...))
		w.sick[sick] = !w.sick[sick]
		w.note("%s is sick: %v", sick, w.sick[sick])
	case 11, 16:
		w.crash()
	case 17:
		w.reboot()
	case 18:
		w.saveAnew(name)
	case 12:
		w.urlDocs = w.some(urlNames)
		w.note("URL: %v", w.urlDocs)
		w.answerURL()
	case 13:
		w.urlDown = !w.urlDown
		w.note("URL down: %v", w.urlDown)
		w.answerURL()
	case 14:
		w.changeAPI()
	case 15:
		w.apiDown = !w.apiDown
		w.note("API down: %v", w.apiDown)
		if !w.apiDown {
			w.apiAnswers(desired.Delivery{Source: "api", Pods: slices.Collect(maps.Values(w.apiPods))})
		}
	}
}

// write writes a file in one of the ways in which files are.
func (w *podWorld) write(name string, c contents) {
	if w.away {
		return
	}
	w.note("write %s: %v", name, c)
	if w.chance(2) {
		write(w.t, w.path(name), c.text())
	} else {
		temporary := w.path(pick(w, []string{".tmp", "tmp", "sub/.d.yaml.x1"}))
		write(w.t, temporary, c.text()[:len(c.text())/2])
		if w.chance(2) {
			w.read()
		}
		write(w.t, temporary, c.text())
		must(w.t, os.Rename(temporary, w.path(name)))
	}
	w.files[name] = c
}

func (w *podWorld) remove(name string) {
	if _, there := w.files[name]; !there || w.away {
		return
	}
	w.note("remove %s", name)
	must(w.t, os.Remove(w.path(name)))
	delete(w.files, name)
}

func (w *podWorld) spoil(name string) {
	if w.away {
		return
	}
	w.note("spoil %s", name)
	write(w.t, w.path(name), pick(w, []string{"", "\t[\n", "kind: Pod\n", "<html>\n", "{\"kind\": \"Pod\",\n"}))
	w.files[name] = nil
}

func (w *podWorld) rename(from, to string) {
	if _, there := w.files[from]; !there || w.away || from == to {
		return
	}
	if w.chance(4) { // a copy
		w.note("copy %s to %s", from, to)
		data, err := os.ReadFile(w.path(from))
		must(w.t, err)
		write(w.t, w.path(to), string(data))
		w.files[to] = w.files[from]
		return
	}
	w.note("rename %s to %s", from, to)
	must(w.t, os.Rename(w.path(from), w.path(to)))
	w.files[to] = w.files[from]
	delete(w.files, from)
}

// touch changes how a file is written, and not what it says.
func (w *podWorld) touch(name string) {
	if c := w.files[name]; c != nil && !w.away {
		w.note("touch %s", name)
		write(w.t, w.path(name), strings.Repeat("# moved down\n", w.rnd.IntN(4))+c.text())
	}
}

// saveInPlace is seen half-done by the agent.
func (w *podWorld) saveInPlace(name string) {
	if w.away {
		return
	}
	c := w.some(fileNames)
	text := c.text()
	cut := w.rnd.IntN(len(text))
	if w.chance(2) {
		cut = len(text) - 2 // inside the version, and good YAML
	}
	for cut > 0 && text[cut-1] == '\n' {
		cut-- // not at the end of a line
	}
	w.note("save %s in place, seen after %d bytes: %v", name, cut, c)
	write(w.t, w.path(name), text[:cut])
	w.files[name] = nil
	w.read()
	write(w.t, w.path(name), text)
	w.files[name] = c
}

// saveAnew takes the file away and makes it anew a moment later, as some editors
// do.
func (w *podWorld) saveAnew(name string) {
	c, there := w.files[name]
	if !there || c == nil || w.away {
		return
	}
	w.note("remove %s, seen, and make it anew: %v", name, c)
	must(w.t, os.Remove(w.path(name)))
	delete(w.files, name)
	w.read()
	time.Sleep(time.Duration(w.rnd.IntN(1900)) * time.Millisecond)
	write(w.t, w.path(name), c.text())
	w.files[name] = c
	w.read()
}

func (w *podWorld) moveFolder() {
	w.away = !w.away
	w.note("folder away: %v", w.away)
	dir := filepath.Join(w.top, "manifests")
	if w.away {
		must(w.t, os.Rename(dir, dir+".away"))
	} else {
		must(w.t, os.Rename(dir+".away", dir))
	}
}

// crash loses everything but what is on the disk. Which of two sources of one
// name is asked first is chance then.
func (w *podWorld) crash() {
	w.note("crash")
	w.agent.stop()
	for uid, name := range w.running {
		if strings.HasPrefix(name, sharedName+"=") {
			delete(w.held, uid)
		}
	}
	w.start()
}

// reboot is a crash after which nothing runs. What the disk remembers of the URL
// and the API starts without them.
func (w *podWorld) reboot() {
	w.note("reboot")
	maps.DeleteFunc(w.held, func(_ types.UID, why string) bool { return strings.HasPrefix(why, "file ") })
	clear(w.running)
	w.crash()
}

func (w *podWorld) answerURL() {
	if w.urlDown {
		return
	}
	maps.DeleteFunc(w.held, func(_ types.UID, why string) bool { return strings.HasPrefix(why, "the URL") })
	before := w.urlSaid
	w.urlSaid = maps.Clone(w.urlDocs)
	w.agent.fromURL.Update(w.urlDocuments(w.urlSaid))
	synctest.Wait()
	for uid, running := range w.running {
		name, _, _ := strings.Cut(running, "=")
		version, ok := w.urlSaid[name]
		if old, was := before[name]; ok && was && old == version && name != sharedName && running == fmt.Sprintf("%s=%d", name, version) {
			w.held[uid] = "the URL says so"
		}
	}
}

func (w *podWorld) changeAPI() {
	uids := slices.Sorted(maps.Keys(w.apiPods))
	d := desired.Delivery{Source: "api", Kind: desired.Delta}
	w.version++
	switch {
	case len(uids) > 0 && w.chance(3):
		uid := pick(w, uids)
		w.note("API: delete %s", uid)
		delete(w.apiPods, uid)
		d.Gone = []types.UID{uid}
	case len(uids) > 0 && w.chance(2):
		p := w.apiPods[pick(w, uids)].DeepCopy()
		p.ResourceVersion = fmt.Sprint(w.version)
		p.Labels = map[string]string{"v": p.ResourceVersion}
		w.note("API: label %s", p.UID)
		w.apiPods[p.UID] = p
		d.Pods = []*corev1.Pod{p}
	default:
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("api%d", w.version), UID: types.UID(fmt.Sprintf("api-%d", w.version)), ResourceVersion: fmt.Sprint(w.version)},
			Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "demo:v1"}}},
		}
		w.note("API: create %s", p.UID)
		w.apiPods[p.UID] = p
		d.Pods = []*corev1.Pod{p}
	}
	if !w.apiDown {
		w.apiAnswers(d)
	}
}

func (w *podWorld) apiAnswers(d desired.Delivery) {
	w.apiSaid = maps.Clone(w.apiPods)
	maps.DeleteFunc(w.held, func(uid types.UID, why string) bool { return why == "the API says so" && w.apiSaid[uid] == nil })
	w.deliver(w.agent, d)
	for uid := range w.apiSaid {
		w.held[uid] = "the API says so"
	}
}
