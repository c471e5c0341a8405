package joined

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/holdfast-dev/holdfast/test/controlplane"
)

// auditPolicy has the API server note what nodes ask, without the contents.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["` + user.NodesGroup + `"]}
- {level: None}
`

// startControlPlane starts one that notes what nodes ask, in the file audit.
func startControlPlane(t testing.TB, cfg Config) (c *controlplane.Test, audit string) {
	t.Helper()
	dir := t.TempDir()
	policy, audit := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"--audit-policy-file=" + policy, "--audit-log-path=" + audit}, cfg.APIServer...)
	return controlplane.Start(t, controlplane.Config{
		Arguments: map[controlplane.Component][]string{controlplane.APIServer: args, controlplane.ControllerManager: cfg.ControllerManager},
	}), audit
}

// A Request is what the node asked of the API server.
type Request struct {
	Verb string // get, list, watch, patch …
	URI  string // with the query
	Code int    // of the answer
}

// Requests returns what the node has asked about a resource, such as pods, or "" for
// all, in all lives of its agent and of the API server, in the order in which it
// was answered. An answer that the API server was killed over is not among them.
func (n *Node) Requests(resource string) []Request {
	n.t.Helper()
	data, err := os.ReadFile(n.audit)
	n.must("read what was asked", err)
	var all []Request
	seen := map[string]bool{} // a watch is noted when it begins, and again when it ends
	for line := range bytes.Lines(data) {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			continue // cut short by a kill
		}
		mine := e.User.Username == "system:node:"+n.Name && (resource == "" || e.ObjectRef != nil && e.ObjectRef.Resource == resource)
		if !mine || seen[string(e.AuditID)] || e.ResponseStatus == nil {
			continue
		}
		seen[string(e.AuditID)] = true
		all = append(all, Request{Verb: e.Verb, URI: e.RequestURI, Code: int(e.ResponseStatus.Code)})
	}
	return all
}

// Lists returns those of requests that made the API server send everything: lists,
// and watches that begin with all there is.
func Lists(requests []Request) []Request {
	var lists []Request
	for _, r := range requests {
		if r.Verb == "list" || strings.Contains(r.URI, "sendInitialEvents=true") {
			lists = append(lists, r)
		}
	}
	return lists
}
