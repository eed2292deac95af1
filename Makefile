# What each target does is said by `make help`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help build test unit lint verify cluster cluster-down e2e bench clean

VERSION ?= $(shell git describe --tags --always --dirty --match 'v*' 2>/dev/null | sed 's/^\([^v]\)/v0.0.0-\1/')
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
DATE    ?= $(shell git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null)
LDFLAGS := -s -w -X main.slipwayVersion=$(VERSION) -X main.gitCommit=$(COMMIT) -X main.buildDate=$(DATE)
LAB     := go run ./test/lab

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/slipway: static, trimmed, stamped with its version
	@echo "building bin/slipway $(VERSION)"
	@TZ=UTC CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/slipway ./cmd/slipway

test: build ## run everything: unit tests, then the suite on real clusters
	@echo "unit tests"
	go test ./...
	@$(MAKE) --no-print-directory e2e

unit: ## run the unit tests only
	go test ./...

lint: ## run golangci-lint, pinned in test/lint/go.mod
	go tool -modfile=test/lint/go.mod golangci-lint run ./...

verify: ## check that generated files, format, vet, lint, go.mod and goldens are current
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "gofmt would change:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	go mod tidy -diff
	go mod verify
	go vet ./...
	@$(MAKE) --no-print-directory lint
	go test ./... -run 'Golden|Imports|CommandTree'

cluster: build ## make a Ready control plane on this machine with `slipway init`, and all it needs
	@$(LAB) up

cluster-down: ## take that cluster and its nodes away
	@$(LAB) down

e2e: build ## run the suite on real clusters (root; builds the lab at first)
	@$(LAB) build
	go test -tags=e2e -count=1 -timeout=60m -parallel=3 -v ./test/e2e/...

bench: build ## compare with the peer: Slipway, peer, ratio
	@$(LAB) build
	go run ./test/bench

clean: ## remove bin/ and the lab's nodes; the lab's built parts stay for the next time
	rm -rf bin
	@$(LAB) down --all
