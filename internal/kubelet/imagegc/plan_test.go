package imagegc

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(minutes int) time.Time { return epoch.Add(time.Duration(minutes) * time.Minute) }

func image(id string, edits ...func(*runtimeapi.Image)) *runtimeapi.Image {
	i := &runtimeapi.Image{Id: id, Size: 100, RepoTags: []string{"docker.io/library/" + id + ":latest"}}
	for _, edit := range edits {
		edit(i)
	}
	return i
}

func pinned(i *runtimeapi.Image) { i.Pinned = true }

func ids(candidates []candidate) string {
	all := ""
	for _, c := range candidates {
		all += c.id
	}
	return all
}

func kept(refs ...string) sets.Set[string] {
	all := sets.New[string]()
	for _, ref := range refs {
		all.Insert(names(ref)...)
	}
	return all
}

func TestSurvey(t *testing.T) {
	for name, test := range map[string]struct {
		old    map[string]history
		images []*runtimeapi.Image
		kept   sets.Set[string]
		first  bool
		want   string // candidates in order
		record map[string]history
	}{
		"the first look finds what is old": {
			images: []*runtimeapi.Image{image("b"), image("a")}, first: true,
			want: "ab", record: map[string]history{"a": {}, "b": {}},
		},
		"a later one finds what is new": {
			old: map[string]history{}, images: []*runtimeapi.Image{image("a")},
			want: "a", record: map[string]history{"a": {detected: at(10)}},
		},
		"in use by ID": {
			images: []*runtimeapi.Image{image("a"), image("b")}, first: true, kept: kept("a"),
			want: "b", record: map[string]history{"a": {lastUsed: at(10)}, "b": {}},
		},
		"the longest unused goes first": {
			old:    map[string]history{"a": {lastUsed: at(3)}, "b": {lastUsed: at(2)}, "c": {lastUsed: at(4)}, "d": {detected: at(9)}},
			images: []*runtimeapi.Image{image("a"), image("b"), image("c"), image("d")},
			want:   "dbac",
			record: map[string]history{"a": {lastUsed: at(3)}, "b": {lastUsed: at(2)}, "c": {lastUsed: at(4)}, "d": {detected: at(9)}},
		},
		"equally long unused: the one seen first": {
			old:    map[string]history{"a": {detected: at(2), lastUsed: at(5)}, "b": {detected: at(1), lastUsed: at(5)}},
			images: []*runtimeapi.Image{image("a"), image("b")},
			want:   "ba",
			record: map[string]history{"a": {detected: at(2), lastUsed: at(5)}, "b": {detected: at(1), lastUsed: at(5)}},
		},
		"pinned stays": {
			images: []*runtimeapi.Image{image("a", pinned), image("b")}, first: true,
			want: "b", record: map[string]history{"a": {}, "b": {}},
		},
		"what is gone is forgotten": {
			old: map[string]history{"a": {lastUsed: at(3)}}, images: []*runtimeapi.Image{image("b")},
			want: "b", record: map[string]history{"b": {detected: at(10)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			records, candidates := survey(test.old, view{images: test.images, kept: test.kept, at: at(10)}, test.first)
			if got := ids(candidates); got != test.want {
				t.Errorf("candidates %q, want %q", got, test.want)
			}
			if diff := cmp.Diff(records, test.record, cmp.AllowUnexported(history{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestNames holds that an image is kept under every way in which a pod or a
// runtime may name it.
func TestNames(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, test := range map[string]struct {
		ref   string
		image *runtimeapi.Image
		want  bool
	}{
		"short name":             {"nginx", &runtimeapi.Image{Id: digest, RepoTags: []string{"docker.io/library/nginx:latest"}}, true},
		"full name":              {"example.com/a/b:1", &runtimeapi.Image{Id: digest, RepoTags: []string{"example.com/a/b:1"}}, true},
		"one of several tags":    {"b:2", &runtimeapi.Image{Id: digest, RepoTags: []string{"docker.io/library/b:1", "docker.io/library/b:2"}}, true},
		"another tag":            {"nginx:2", &runtimeapi.Image{Id: digest, RepoTags: []string{"docker.io/library/nginx:1"}}, false},
		"digest":                 {"nginx@" + digest, &runtimeapi.Image{Id: "x", RepoDigests: []string{"docker.io/library/nginx@" + digest}}, true},
		"tag and digest":         {"nginx:1@" + digest, &runtimeapi.Image{Id: "x", RepoDigests: []string{"docker.io/library/nginx@" + digest}}, true},
		"ID":                     {digest, &runtimeapi.Image{Id: digest}, true},
		"ID without its kind":    {digest[len("sha256:"):], &runtimeapi.Image{Id: digest}, true},
		"what is no name":        {"???", &runtimeapi.Image{Id: digest}, false},
		"the runtime's spelling": {"nginx", &runtimeapi.Image{Id: digest, RepoTags: []string{"nginx"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (view{kept: kept(test.ref)}).keeps(test.image); got != test.want {
				t.Errorf("kept %v, want %v", got, test.want)
			}
		})
	}
}

func TestTooOld(t *testing.T) {
	candidates := []candidate{
		{id: "a"}, // there before we began, never used
		{id: "b", history: history{lastUsed: at(40)}},
		{id: "c", history: history{detected: at(58)}},
		{id: "d", history: history{detected: at(5), lastUsed: at(59)}},
	}
	for name, test := range map[string]struct {
		maxAge    time.Duration
		began     time.Time
		old, rest string
	}{
		"no limit":                     {0, at(0), "", "abcd"},
		"began just now":               {10 * time.Minute, at(55), "", "abcd"},
		"exactly as old":               {20 * time.Minute, at(0), "a", "bcd"},
		"older":                        {19 * time.Minute, at(0), "ab", "cd"},
		"never used and just detected": {time.Minute, at(0), "abc", "d"},
	} {
		t.Run(name, func(t *testing.T) {
			old, rest := tooOld(candidates, test.maxAge, at(60), test.began)
			if ids(old) != test.old || ids(rest) != test.rest {
				t.Errorf("old %q, rest %q; want %q, %q", ids(old), ids(rest), test.old, test.rest)
			}
		})
	}
}

func TestRemovable(t *testing.T) {
	candidates := []candidate{
		{id: "a"}, {id: "b", history: history{detected: at(58)}}, {id: "c", history: history{detected: at(59)}},
	}
	if got := ids(removable(candidates, 2*time.Minute, at(60))); got != "ab" {
		t.Errorf("got %q, want those of at least the minimum age", got)
	}
}

func TestExcess(t *testing.T) {
	policy := Policy{HighThresholdPercent: 90, LowThresholdPercent: 80}
	for name, test := range map[string]struct {
		policy Policy
		space  Space
		want   int64
	}{
		"room":                         {policy, Space{1000, 400}, 0},
		"just below":                   {policy, Space{1000, 110}, 0},
		"at the threshold":             {policy, Space{1000, 100}, 100},
		"over it":                      {policy, Space{1000, 50}, 150},
		"full":                         {policy, Space{1000, 0}, 200},
		"more available than there is": {policy, Space{1000, 2000}, 0},
		"never":                        {Policy{HighThresholdPercent: 100, LowThresholdPercent: 80}, Space{1000, 1}, 0},
		"always":                       {Policy{HighThresholdPercent: 1, LowThresholdPercent: 0}, Space{1000, 900}, 100},
		"a large disk":                 {policy, Space{1 << 56, 0}, (1 << 56) / 5},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.policy.excess(test.space); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}
