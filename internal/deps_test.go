package internal

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/holdfast-dev/holdfast/"

// kinds says what every package of ours is. ARCHITECTURE.md explains the kinds.
var kinds = map[string]string{
	"cmd/demo":                "cmd",
	"cmd/holdfast":            "cmd",
	"cmd/holdfast-kubelet":    "cmd",
	"internal/kubeletcommand": "cmd",

	"internal/backup":                 "leaf",
	"internal/atomicfile":             "leaf",
	"internal/regularfile":            "leaf",
	"internal/certfile":               "leaf",
	"internal/docs":                   "leaf", // tests alone
	"internal/diskusage":              "leaf",
	"internal/projectquota":           "leaf",
	"internal/qgroup":                 "leaf",
	"internal/cgroupfs":               "leaf",
	"internal/resourcemetrics":        "leaf",
	"internal/restmetrics":            "leaf",
	"internal/processmetrics":         "leaf",
	"internal/kubelet/podmetrics":     "leaf",
	"internal/cadvisormetrics":        "leaf",
	"internal/figures":                "leaf",
	"internal/cli":                    "leaf",
	"internal/accounts":               "leaf",
	"internal/control":                "leaf",
	"internal/doctor":                 "leaf",
	"internal/node":                   "root",
	"internal/node/board":             "state",
	"internal/node/controlserver":     "stage",
	"internal/node/heapkeeper":        "stage",
	"internal/node/servicemanager":    "stage",
	"internal/clusternode":            "root",
	"internal/kubeletconfig":          "leaf",
	"internal/kubelethost":            "leaf",
	"internal/kubelet":                "root",
	"internal/kubelet/allocation":     "leaf",
	"internal/kubelet/nodeaddress":    "leaf",
	"internal/kubelet/nodelabels":     "leaf",
	"internal/kubelet/reservation":    "leaf",
	"internal/kubelet/certstore":      "leaf",
	"internal/kubelet/identity":       "stage",
	"internal/kubelet/kubeconfigfile": "leaf",
	"internal/kubelet/nodefolder":     "leaf",
	"internal/kubelet/tlsoptions":     "leaf",
	"internal/kubelet/checkpoint":     "adapter",
	"internal/kubelet/podcertificate": "stage",
	"internal/kubelet/answer":         "leaf",
	"internal/kubelet/checkpointer":   "stage",
	"internal/kubelet/checkpointfile": "leaf",
	"internal/kubelet/cri":            "adapter",
	"internal/kubelet/cri/crifake":    "leaf", // a runtime for tests
	"internal/kubelet/cri/critest":    "leaf", // tests alone
	"internal/kubelet/csi":            "adapter",
	"internal/kubelet/csinode":        "stage",
	"internal/kubelet/pluginregistry": "stage",
	"internal/kubelet/devices":        "stage",
	"internal/kubelet/podresources":   "stage",
	"internal/kubelet/eviction":       "stage",
	"internal/kubelet/imagegc":        "stage",
	"internal/kubelet/imagerights":    "leaf",
	"internal/kubelet/pullrecords":    "adapter",
	"internal/kubelet/logrotate":      "stage",
	"internal/kubelet/nodeshutdown":   "stage",
	"internal/kubelet/logind":         "adapter",
	"internal/kubelet/logindtest":     "leaf", // a logind for tests
	"internal/kubelet/fault":          "leaf",
	"internal/kubelet/fsgroup":        "leaf",
	"internal/kubelet/observed":       "state",
	"internal/kubelet/pleg":           "stage",
	"internal/kubelet/reason":         "leaf",
	"internal/kubelet/runtest":        "leaf", // tests alone
	"internal/kubelet/runtimelabels":  "leaf",
	"internal/version":                "leaf",
	"internal/wake":                   "leaf",
	"internal/instance":               "leaf",
	"internal/kubelet/startorder":     "leaf",
	"internal/kubelet/staticpod":      "leaf",
	"internal/kubelet/podsource":      "stage",
	"internal/kubelet/desired":        "state",
	"internal/localapi":               "root",
	"internal/localapi/attachdetach":  "stage",
	"internal/localapi/binder":        "stage",
	"internal/localapi/podgc":         "stage",
	"internal/localapi/passes":        "leaf",
	"internal/localapi/claimexpand":   "stage",
	"internal/localapi/certrenewal":   "stage",
	"internal/localapi/pki":           "leaf",
	"internal/logfile":                "stage",
	"internal/logging":                "leaf",
	"internal/mounttree":              "leaf",
	"internal/localdisk":              "leaf",
	"internal/manifest":               "leaf",
	"internal/podrun":                 "stage",
	"internal/manifestdir":            "stage",
	"internal/manifesturl":            "stage",
	"internal/manifestdiff":           "leaf",
	"internal/localapi/faultevents":   "stage",
	"internal/localapi/objects":       "stage",
	"internal/retry":                  "leaf",
	"internal/rungroup":               "leaf",
	"internal/ociimage":               "leaf",
	"internal/imagedir":               "stage",
	"internal/registries":             "leaf",
	"internal/podnet":                 "leaf",
	"internal/runtimehost":            "stage",
	"internal/testenv":                "leaf",
	"internal/kubelet/atomicdir":      "leaf",
	"internal/kubelet/podvolumes":     "leaf",
	"internal/kubelet/objects":        "adapter",
	"internal/kubelet/volumeplugin":   "adapter",
	"internal/kubelet/volumemanager":  "stage",
	"internal/kubelet/volumestats":    "stage",
	"internal/kubelet/stats":          "stage",
	"internal/kubelet/volumeexpand":   "stage",
	"internal/kubelet/podcgroup":      "adapter",
	"internal/kubelet/hoststats":      "adapter",
	"internal/kubelet/nodestatus":     "stage",
	"internal/kubelet/crilog":         "leaf",
	"internal/kubelet/lifecycle":      "leaf",
	"internal/kubelet/podworker":      "stage",
	"internal/kubelet/podstatus":      "stage",
	"internal/kubelet/mirror":         "stage",
	"internal/kubelet/syncloop":       "stage",
	"internal/kubelet/podadmit":       "leaf",
	"internal/kubelet/podfiles":       "leaf",
	"internal/kubelet/podfolder":      "adapter",
	"internal/kubelet/podsync":        "stage",
	"internal/kubelet/server":         "stage",
	"internal/kubelet/userids":        "adapter",
	"internal/kubelet/probehandler":   "adapter",
	"internal/kubelet/prober":         "stage",

	"internal/kubelet/credentialconfig":   "leaf",
	"internal/kubelet/credentialprovider": "adapter",
}

// may says which kinds a kind may import. Only a root may import a stage, so
// stages meet only there.
var may = map[string][]string{
	"leaf":    {"leaf"},
	"state":   {"leaf"},
	"adapter": {"leaf", "state"},
	"stage":   {"leaf", "state"},
	"root":    {"leaf", "state", "adapter", "stage"},
	"cmd":     {"leaf", "root"},
}

// alsoMay lists the exceptions, each with its reason in ARCHITECTURE.md.
var alsoMay = map[string][]string{
	"internal/node":        {"internal/kubelet", "internal/localapi"}, // it wires the others
	"internal/clusternode": {"internal/kubelet"},                      // likewise
	"cmd/holdfast":         {"internal/kubeletcommand"},               // the command that two programs have
	"cmd/holdfast-kubelet": {"internal/kubeletcommand"},
}

func TestImports(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", module+"...")
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var pkg struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&pkg); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		from := strings.TrimPrefix(pkg.ImportPath, module)
		if from == "internal" || strings.HasPrefix(from, "test/") || strings.HasPrefix(from, "hack/") || strings.HasPrefix(from, "bench/") {
			continue // tests see everything
		}
		seen[from] = true
		kind, ok := kinds[from]
		if !ok {
			t.Errorf("%s has no kind: add it to kinds", from)
			continue
		}
		for _, imp := range pkg.Imports {
			if to, ours := strings.CutPrefix(imp, module); ours {
				checkImport(t, from, kind, to)
			}
		}
	}
	for pkg := range kinds {
		if !seen[pkg] {
			t.Errorf("%s has a kind and does not exist: remove it from kinds", pkg)
		}
	}
}

func checkImport(t *testing.T, from, kind, to string) {
	t.Helper()
	if slices.Contains(alsoMay[from], to) {
		return
	}
	if !slices.Contains(may[kind], kinds[to]) {
		t.Errorf("%s (%s) may not import %s (%s)", from, kind, to, kinds[to])
	}
	if kind != "cmd" && kinds[to] != "leaf" && kinds[to] != "stage" && program(from) != program(to) && !slices.Contains(alsoMay[from], "internal/"+program(to)) {
		t.Errorf("%s may not import %s: another program's package", from, to)
	}
}

// program returns which program a package belongs to.
func program(pkg string) string {
	dir, _, _ := strings.Cut(strings.TrimPrefix(pkg, "internal/"), "/")
	return dir
}
