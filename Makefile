SHELL := /bin/bash
.DEFAULT_GOAL := help

SEEDS    ?= 10000
FUZZTIME ?= 10s
BENCH    ?= .
# A newer linter than the one pinned here may find more than this tree was cleaned of.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: build
build: ## compile the commands into bin/
	@mkdir -p bin
	go build -o bin/ ./cmd/...

.PHONY: demo
demo: ## RC traffic between two devices on this machine; as root over AF_XDP
	@scripts/setup.sh demo
	@mkdir -p bin
	@go build -o bin/ ./cmd/urxe
	@bin/urxe demo $(ARGS)

.PHONY: test
test: ## everything that must hold: vet, race, simulation, AF_XDP, real rxe peers
	@SEEDS=$(SEEDS) scripts/test.sh

.PHONY: sim
sim: ## the seeded network simulation alone: make sim SEEDS=1000000
	go test -run "^TestSeeds$$" -timeout 0 ./tests/sim -seeds=$(SEEDS)

.PHONY: bench
bench: ## benchmarks; where two sides are compared, their ratio: make bench BENCH=Engine
	@scripts/setup.sh bench || true
	go test -p 1 -run '^$$' -bench '$(BENCH)' -benchmem -timeout 30m ./...

.PHONY: interop
interop: ## the tests against a real Linux rxe in a QEMU guest alone
	@scripts/setup.sh test
	go test -count=1 -timeout 60m ./tests/interop/...

.PHONY: fuzz-short
fuzz-short: ## every fuzz target for FUZZTIME each
	@scripts/fuzz.sh $(FUZZTIME)

.PHONY: lint
lint: ## gofmt, vet, staticcheck and shellcheck
	@scripts/setup.sh lint || true
	@test -z "$$(gofmt -l $$(git ls-files '*.go') | tee /dev/stderr)"
	go vet ./...
	go run $(STATICCHECK) ./...
	@! command -v shellcheck >/dev/null || shellcheck $$(git ls-files '*.sh') .ci/run

.PHONY: generate
generate: ## make the committed generated files again (XDP objects, MAD views)
	@scripts/setup.sh generate
	go generate ./...

.PHONY: clean
clean: ## remove what make built
	rm -rf bin

.PHONY: help
help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
