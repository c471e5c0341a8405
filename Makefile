# Holdfast's tasks. "make" lists them.

SHELL       := /bin/bash
.DEFAULT_GOAL := help
BIN         := bin
VERSION     := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
GO          ?= go
# What kubectl prints and sends as its version, in holdfast and alone. Not ":=":
# only a build asks for it.
KUBERNETES   = $(shell $(GO) list -m -f '{{.Version}}' k8s.io/kubernetes)
KUBENUMBER   = $(subst ., ,$(KUBERNETES:v%=%))
KUBEFLAGS    = $(foreach of,k8s.io/component-base/version k8s.io/client-go/pkg/version,-X $(of).gitVersion=$(KUBERNETES) \
	-X $(of).gitMajor=$(word 1,$(KUBENUMBER)) -X $(of).gitMinor=$(word 2,$(KUBENUMBER)))
LDFLAGS      = -s -w -X github.com/holdfast-dev/holdfast/internal/version.Version=$(VERSION) $(KUBEFLAGS)
# The flags are those of "go test" too, so that both share one build cache.
GOBUILD     := CGO_ENABLED=0 $(GO) build
LINT        := $(BIN)/tools/golangci-lint
ROOT_DIR    ?= /var/lib/holdfast
PREFIX      ?= /usr


help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

## ---- for users

up: deps build ## install what is missing, build, and start a node on this machine
	$(BIN)/holdfast up --detach --root-dir $(ROOT_DIR)

test: deps build $(BIN)/tools/kubectl $(BIN)/tools/controlplane ## install what is missing, then run every test
	@./test/run

deps: ## install the packages that a build and a node need
	@./hack/deps $(if $(filter test,$(MAKECMDGOALS)),test)

programs := $(BIN)/holdfast $(BIN)/holdfast-kubelet

build: $(programs) runtime ## build the programs in cmd/ and the runtime beside them

.PHONY: $(programs)
$(programs):
	@echo "Building $@ (the first time compiles the Kubernetes libraries: about 5 minutes on two cores)"
	@$(GOBUILD) -ldflags '$(LDFLAGS)' -o $@ ./cmd/$(@F)

runtime: ## build containerd, its shim, runc and the CNI plugins into bin/runtime
	@./runtime/build.sh $(BIN)/runtime

# BUILT=1 installs what is in bin/ as it is.
install: $(if $(BUILT),,build) ## install programs, runtime and systemd units (DESTDIR=, PREFIX=/usr)
	install -D -m 0755 -t $(DESTDIR)$(PREFIX)/bin $(programs)
	mkdir -p $(DESTDIR)$(PREFIX)/libexec/holdfast
	cp -RL $(BIN)/runtime/. $(DESTDIR)$(PREFIX)/libexec/holdfast/
	install -d $(DESTDIR)/lib/systemd/system
	for unit in holdfast.service holdfast-kubelet.service; do \
		sed 's|/usr/bin/holdfast|$(PREFIX)/bin/holdfast|' deploy/systemd/$$unit > $(DESTDIR)/lib/systemd/system/$$unit || exit 1; \
	done

## ---- for developers

unit: ## tests that need neither root nor a runtime, with the race detector
	@./test/run unit

integration: build $(BIN)/tools/kubectl $(BIN)/tools/controlplane ## tests of the parts on a real runtime (root)
	@./test/run integration

e2e: build $(BIN)/tools/kubectl ## black box: the binary, a real containerd, kubectl (root)
	@./test/run e2e

faults: build $(BIN)/tools/kubectl ## kill the agent at every step of a pod's life and of its mounts, and more trouble: the whole sweep, an hour (root)
	@HOLDFAST_FAULTS=all HOLDFAST_LAYER=integration CGO_ENABLED=0 $(GO) test ./internal/kubelet/volumemanager -run TestDiesBetweenSteps -count=1 -timeout 30m
	@HOLDFAST_FAULTS=all HOLDFAST_LAYER=e2e CGO_ENABLED=0 $(GO) test ./test/e2e -run 'TestAgentDiesAnywhere|TestRuntimeTroubleUnderWork|TestManyPods' -count=1 -v -timeout 120m

conformance: build $(BIN)/tools/e2e_node.test ## upstream's own tests of a node, as far as they can pass (root; GROUPS=05,06 FOCUS=regexp PROCS=8)
	@$(GO) run ./test/conformance/cmd -groups '$(GROUPS)' -focus '$(FOCUS)' -procs '$(or $(PROCS),8)'

guest-test: build ## tests in an emulated machine: cgroup v2, quota, reboot, power cut (no root)
	@./test/run guest

guest: build ## that machine by hand: a shell on its console
	@$(GO) run ./test/guest/cmd

controlplane: $(BIN)/tools/controlplane $(BIN)/tools/kubectl ## a real control plane to try things on (ADDRESS=IP: reached from there too)
	@$(GOBUILD) -o $(BIN)/tools/controlplane-up ./test/controlplane/up
	@$(BIN)/tools/controlplane-up -address '$(ADDRESS)' -dir '$(DIR)'

fuzz: ## every fuzz target for 30 s
	@./test/run fuzz

bench: build $(BIN)/tools/controlplane ## measure, and write docs/benchmarks.md
	@./bench/run

fmt: $(LINT) ## format the code
	@$(LINT) fmt ./...

lint: $(LINT) ## run the linters
	@$(LINT) run ./...
	@cd bench/upstreamkubelet && ../../$(LINT) run --config ../../.golangci.yml ./...

verify: ## fail if generated files, go.mod or formatting would change
	@./hack/verify

check: lint verify unit ## what to run before sending a change

big: ## the longest files and functions: for talk, not a gate
	@./hack/big

clean: ## remove what was built
	rm -rf $(BIN)

# The kubectl of the Kubernetes release that we are built from, for tests.
$(BIN)/tools/kubectl: go.mod
	@echo "Building kubectl for the tests (once)"
	@mkdir -p $(BIN)/tools
	@$(GOBUILD) -ldflags '$(KUBEFLAGS)' -o $@ k8s.io/kubernetes/cmd/kubectl

# The components of a real control plane, for tests.
$(BIN)/tools/controlplane: test/controlplane/server/go.mod test/controlplane/server/main.go
	@echo "Building the control plane for the tests (once; about 7 minutes on two cores)"
	@./test/controlplane/server/build.sh $@

# Upstream's node tests, and what their images are made of.
$(BIN)/tools/e2e_node.test: test/conformance/upstream/go.mod test/conformance/upstream/build.sh
	@echo "Building upstream's node tests (once; about 5 minutes on two cores)"
	@./test/conformance/upstream/build.sh $(BIN)/tools

$(LINT): tools/go.mod
	@echo "Building the linter (once; about 2 minutes)"
	@mkdir -p $(BIN)/tools
	@CGO_ENABLED=0 $(GO) build -modfile=tools/go.mod -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: help up test deps install build runtime unit integration e2e conformance guest guest-test controlplane fuzz bench fmt lint verify check big clean
