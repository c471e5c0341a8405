package e2e

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// answering is a credential provider plugin that knows one password.
const answering = `#!/bin/sh
cat >>"$ASKED"; echo >>"$ASKED"
echo '{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Registry","cacheDuration":"0s","auth":{"provided.example":{"username":"ann","password":"secret"}}}'
`

// TestImagePulls pulls from a private registry under two names: without
// credentials, with a pod's secret, and with those of a plugin.
func TestImagePulls(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	address, caFile := newRegistry(t)
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("bin/answering", answering, 0o755)
	asked := filepath.Join(dir, "asked")
	providers := write("providers.yaml", `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: answering
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: [provided.example]
  defaultCacheDuration: 1m
  env: [{name: ASKED, value: `+asked+`}]
  tokenAttributes: {serviceAccountTokenAudience: registry, cacheType: ServiceAccount, requireServiceAccount: true}
`, 0o644)
	config := write("node.yaml", fmt.Sprintf(`apiVersion: holdfast.dev/v1alpha1
kind: NodeConfiguration
images:
  mirrors:
  - registry: private.example
    endpoints: [{url: "https://%s", caFile: %s}]
  - registry: provided.example
    endpoints: [{url: "https://%s", caFile: %s}]
`, address, caFile, address, caFile), 0o600)
	up := func(bin string) (string, error) {
		return n.try("up", "--detach", "--config", config, "--node-name", n.name, "--api-port", "0", "--kubelet-port", "0",
			"--image-credential-provider-config", providers, "--image-credential-provider-bin-dir", bin)
	}
	out, err := up(dir)
	if err == nil {
		t.Fatal("it starts without the plugin's program")
	}
	if err := wants(out, "imageCredentialProviderConfig: "+providers+": providers[0].name: its program: stat "+dir+"/answering"); err != nil {
		t.Error(err)
	}
	if out, err := up(filepath.Join(dir, "bin")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(name, image, more string) {
		n.kubectl("run", name, "--image="+image, "--image-pull-policy=IfNotPresent", `--overrides={"apiVersion":"v1","spec":{`+more+`}}`)
	}
	waits := func(name string) {
		t.Helper()
		n.eventually(name+" waits for its image", func() error {
			return wants(n.kubectl("get", "pod", name, "-o", "jsonpath={.status.containerStatuses[*].state.waiting.reason}"), "ImagePull")
		})
	}

	login := base64.StdEncoding.EncodeToString([]byte(registryUser + ":" + registryPassword))
	n.kubectl("create", "secret", "generic", "login", "--type=kubernetes.io/dockerconfigjson",
		`--from-literal=.dockerconfigjson={"auths":{"private.example":{"auth":"`+login+`"}}}`)
	run("nobody", "private.example/app:1", "")
	waits("nobody")
	run("secret", "private.example/app:1", `"imagePullSecrets":[{"name":"login"}]`)
	n.running("secret")
	run("another", "private.example/app:1", "") // the image is there
	waits("another")
	run("plugin", "provided.example/app:1", "")
	n.running("plugin")
	data, err := os.ReadFile(asked)
	if err != nil {
		t.Fatal(err)
	}
	if err := wants(string(data), `"kind":"CredentialProviderRequest"`, `"image":"provided.example/app"`, `"serviceAccountToken":"ey`); err != nil {
		t.Error(err)
	}
	if strings.Contains(string(data), "private.example") {
		t.Error("the plugin was asked for what it is not configured for")
	}
	n.kubectl("delete", "pod", "nobody", "secret", "another", "plugin", "--timeout=3m")
}
