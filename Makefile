# `make` prints the targets. What a target needs and lacks, it says.

.DEFAULT_GOAL := help
.PHONY: bench-stream bench-plan help build test test-race test-adapters lint generate demo bench bench-tokenizer bench-handover fuzz clean

help: ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build ./millrace
	go build -o millrace ./cmd/millrace

test: ## run everything that CI runs: vet, gofmt, Go, arm64 golden tests, Python, end to end
	@tools/test.sh

test-race: ## run the Go tests under the race detector
	go test -race -vet=off -p 2 -timeout 30m ./...

# PyTorch without CUDA is not in the default index: TORCH_INDEX=<URL of PyTorch's index of CPU wheels> saves gigabytes.
test-adapters: ## run the Python tests with PyTorch importable (TORCH_INDEX: where its CPU wheels are)
	@$(if $(TORCH_INDEX),PIP_EXTRA_INDEX_URL="$(TORCH_INDEX)") tools/venv.sh .venv-torch tools/requirements-torch.txt
	.venv-torch/bin/python -m pytest -q -p no:cacheprovider clients/python

lint: ## vet, gofmt and the architecture test
	go vet ./...
	@out=$$(gofmt -l .); [ -z "$$out" ] || { echo "gofmt would change:"; echo "$$out"; exit 1; }
	go test -count=1 -v -run 'Test' ./internal/archtest

generate: ## regenerate proto/*.pb.go, the schema and the tables; leaves the tree clean
	@tools/generate.sh

demo: build ## train a small model on real files of this machine, kill a loader, resume on other ranks
	@tools/venv.sh .venv tools/requirements-test.txt
	.venv/bin/python examples/demo/demo.py $(if $(DEMO),--model $(DEMO))

bench: bench-tokenizer bench-stream bench-plan bench-handover ## run all benchmarks; results belong into docs/benchmarks.md

bench-tokenizer: ## our tokenizer beside tiktoken and tokenizers
	bench/tokenizer.sh

bench-stream: ## files to trainer: tokens/s beside a peer, start-up, idle CPU, memory
	bench/stream.sh

bench-plan: ## time and quality of plans at 16K and 64K segments
	go test ./orchestrator/planner -run XXX -bench "Plan|Pack|Fill|Overhead" -benchtime 1x

bench-handover: build ## hand-over time and trainer CPU for each batch
	@tools/venv.sh .venv tools/requirements-test.txt
	.venv/bin/python bench/handover.py

fuzz: ## run every fuzz target for FUZZTIME (20s)
	@tools/fuzz.sh

clean: ## remove what was built, the Python environments too
	rm -rf millrace build .venv .venv-torch .venv-e2e .venv-bench
