# What each target does is said by `make help`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help build bundle test test-full unit fuzz lint verify cluster cluster-down tables test-packages e2e examples vm bench packages release clean

VERSION ?= $(shell git describe --tags --always --dirty --match 'v*' 2>/dev/null | sed 's/^\([^v]\)/v0.0.0-\1/')
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
DATE    ?= $(shell TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null)
# Without gRPC's tracing, which nothing here serves, each start needs 0.5 MiB less.
TAGS    := grpcnotrace
# Functions begin at multiples of 8 bytes instead of 32: 0.6 MB less.
LDFLAGS := -s -w -funcalign=8 -X main.slipwayVersion=$(VERSION) -X main.gitCommit=$(COMMIT) -X main.buildDate=$(DATE)
LAB     := go run ./test/lab
RELEASE := -version '$(VERSION)' -commit '$(COMMIT)' -date '$(DATE)'
TOOL    := go tool -modfile=test/tools/go.mod

# Much of these modules' code is generated. Without inlining it, the program is 2 MB smaller, and starts as fast.
GENERATED := -gcflags=k8s.io/...=-l -gcflags=github.com/google/...=-l -gcflags=google.golang.org/...=-l -gcflags=go.etcd.io/etcd/...=-l

# The same for the program, for tools and for tests, so that what was compiled for one serves all of them. The race detector
# alone needs cgo.
export CGO_ENABLED := 0
export GOFLAGS := $(GOFLAGS) -trimpath -tags=$(TAGS) $(GENERATED)

# Of the bundle, and of test-packages, as Go calls them.
ARCH          = $(shell go env GOARCH)
ARCHITECTURES = $(ARCH)

PROGRAM  ?= bin/slipway
FUZZTIME ?= 15s
VM       ?= .*

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/slipway: static, trimmed, stamped with its version
	@echo "building $(PROGRAM) $(VERSION)"
	@TZ=UTC go build -ldflags '$(LDFLAGS)' -o $(PROGRAM) ./cmd/slipway

# In dist/, so that it is there for other machines, too.
bundle: build ## make dist/slipway-bundle-VERSION-linux-ARCH.tar of the lab's parts: all that a node needs. ARCH=arm64 makes one for arm64
	@mkdir -p dist; parts=$$($(LAB) bundle-parts --arch '$(ARCH)') && \
	version=$$(sed -n 's/^kubernetesVersion: //p' "$$parts/bundle.yaml") && \
	bin/slipway bundle create --from "$$parts" -o "dist/slipway-bundle-$$version-linux-$(ARCH).tar"

SUITE := go run ./test/suite

# Chooses the samples of long tests: those of this commit again with SLIPWAY_TEST_SEED=COMMIT.
export SLIPWAY_TEST_SEED ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null)

# docs/testing.md says what is in which tier, and where a new test belongs.
test: build ## run the core tier, meant to take 35 minutes: unit tests, samples of the long ones, each promise on real clusters (root)
	@$(SUITE) -budget 35m

test-full: build ## run everything, in about two hours (root)
	@$(SUITE) -full

unit: build ## run the core tier's tests that need no cluster
	@$(SUITE) unit race long

fuzz: ## run every fuzz target for FUZZTIME (15s), two at a time
	go run ./test/fuzz -time $(FUZZTIME)

lint: ## run golangci-lint, pinned in test/tools/go.mod
	$(TOOL) golangci-lint run ./...
	cd packaging && go tool -modfile=../test/tools/go.mod golangci-lint run ./...

verify: ## check format, go.mod, vet, lint, dead code and goldens
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "gofmt would change:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	go mod tidy -diff
	cd test/zlint && go mod tidy -diff
	cd test/etcdutl && go mod tidy -diff
	cd test/drain && go mod tidy -diff
	cd test/gitleaks && go mod tidy -diff
	cd test/capi && go mod tidy -diff
	cd test/capi/controllers && go mod tidy -diff
	cd test/tools && go mod tidy -diff
	cd packaging && go mod tidy -diff
	go mod verify
	go vet ./...
	go vet -tags=man ./cmd/slipway
	go vet -tags=vm,$(TAGS) ./test/vm
	cd test/capi && go vet -tags=e2e,$(TAGS) ./...
	@$(MAKE) --no-print-directory lint
	@dead=$$($(TOOL) deadcode ./cmd/slipway); test -z "$$dead" || { echo "nothing calls:"; echo "$$dead"; exit 1; }
	go test ./... -run 'Golden|Imports|CommandTree|RetiredWords'

cluster: build ## make a Ready control plane on this machine with `slipway init`, and all it needs
	@$(LAB) up

cluster-down: ## take that cluster and its nodes away
	@$(LAB) down

# Both use what the lab has built of Kubernetes 1.36 and 1.37: the programs, and the compiled packages in Go's cache, so
# that this takes about a minute and a half. For 1.34 and 1.35, which would take nine minutes each, `make unit` compares
# the hash of what their tables were made from.
tables: ## compare the tables of internal/releases with the released modules, and with the lab's programs
	go test -tags=e2e,$(TAGS) -count=1 -timeout=40m -run '^TestProgramsRefuseWhatTheTablesSay$$' -v ./test/releases
	go run ./test/releases

test-packages: ## make the packages of this version for the suite, in bin/packages/
	@cd packaging && go run . $(RELEASE) -architectures '$(ARCHITECTURES)' -out ../bin/packages

e2e: build ## run the core tier's tests on real clusters (root; builds the lab at first)
	@$(SUITE) parts packages e2e

# These take too long for `make test`.
examples: build bundle ## run examples/cloud-init, examples/ansible and Cluster API on real machines: hours (root; installs ansible-core)
	@command -v ansible-playbook >/dev/null && command -v ssh >/dev/null || { apt-get -q update && apt-get -q install --yes --no-install-recommends ansible-core openssh-client; }
	go test -tags=e2e,$(TAGS) -count=1 -timeout=60m -v -run '^Test(Ansible|CloudInit)$$' ./test/e2e
	cd test/capi && go test -tags=e2e,$(TAGS) -count=1 -timeout=2h -v -run '^TestProbe' .
	cd test/capi && go test -tags=e2e,$(TAGS) -count=1 -timeout=6h -v -run '^TestClusterAPI$$' .

vm: ARCHITECTURES := amd64,arm64
vm: build bundle test-packages ## run test/vm in virtual machines, emulated if KVM doesn't work: hours (root; installs QEMU). VM=TestUp runs only this one
	go test -tags=vm,$(TAGS) -count=1 -timeout=96h -v -run '^$(VM)$$' ./test/vm

bench: build bundle ## compare with kubeadm: Slipway, kubeadm, ratio
	go run ./test/bench

# The checksums of all that is in dist/.
SUMS := cd dist && LC_ALL=C && sha256sum -- slipway* >SHA256SUMS

packages: ## make the deb and the rpm for each architecture in dist/, with SBOMs and SHA256SUMS
	@echo "packaging $(VERSION)"
	@cd packaging && go run . $(RELEASE)
	@$(SUMS)

release: ## make all that a release consists of, in an empty dist/
	@rm -rf dist
	@$(MAKE) --no-print-directory packages
	@$(MAKE) --no-print-directory bundle
	@$(SUMS)

clean: ## remove bin/, dist/ and the lab's nodes; the lab's built parts stay for the next time
	rm -rf bin dist
	@$(LAB) down --all
