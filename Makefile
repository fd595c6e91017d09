# `make` prints the targets. What a target needs and lacks, it says.

.DEFAULT_GOAL := help
.PHONY: bench-failover bench-stream bench-plan help build test test-race test-adapters sim lint generate demo bench bench-tokenizer bench-handover chaos mutants fuzz clean

help: ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build ./millrace
	go build -o millrace ./cmd/millrace

test: ## run everything that CI runs: vet, gofmt, Go, arm64 golden tests, Python, end to end
	@tools/test.sh

test-race: ## run the Go tests under the race detector
	go test -race -vet=off -p 2 -timeout 30m ./...

# The environment is kept outside the checkout, so that a fresh clone need not fetch PyTorch again.
TORCH_VENV ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/millrace/venv-torch

test-adapters: ## run the client's tests with PyTorch: tensors that share the memory, frameworks that plug in
	@tools/torch.sh $(TORCH_VENV)
	$(TORCH_VENV)/bin/python -m pytest -q -p no:cacheprovider clients/python
	@# By itself: it imports torch, and where torch is imported the client gives tensors.
	$(TORCH_VENV)/bin/python -m pytest -q -p no:cacheprovider examples/demo/check_torch.py

# A campaign counts where its row is appended: TOTALS=docs/campaigns.md. Seeds that fail are kept, and replayed by make test.
sim: ## play SEEDS (10000) seeds of the simulation FROM (2000) on; TOTALS=file appends a row of totals
	cd internal/verify/sim && go test -count=1 -vet=off -timeout 0 -run '^TestSeeds$$' -args -seeds $(or $(SEEDS),10000) -from $(or $(FROM),2000) $(if $(TOTALS),-totals $(abspath $(TOTALS)))

lint: ## vet, gofmt and the architecture test
	go vet ./...
	@out=$$(gofmt -l .); [ -z "$$out" ] || { echo "gofmt would change:"; echo "$$out"; exit 1; }
	go test -count=1 -v -run 'Test' ./internal/verify/archtest

generate: ## regenerate proto/*.pb.go, the schema and the tables; leaves the tree clean
	@tools/generate.sh

# DEMO=torch takes PyTorch from where test-adapters does.
demo: build ## train a small model on real files of this machine, kill a loader, resume on other ranks
ifeq ($(DEMO),torch)
	@tools/torch.sh $(TORCH_VENV)
	@$(TORCH_VENV)/bin/python examples/demo/demo.py --model torch
else
	@tools/venv.sh .venv tools/requirements-test.txt
	@.venv/bin/python examples/demo/demo.py $(if $(DEMO),--model $(DEMO))
endif

bench: bench-tokenizer bench-stream bench-plan bench-handover bench-failover ## run all benchmarks; results belong into docs/benchmarks.md

bench-tokenizer: ## our tokenizer beside tiktoken and tokenizers
	bench/tokenizer.sh

bench-stream: ## files to trainer: tokens/s beside a peer, start-up, idle CPU, memory
	bench/stream.sh

# GOALS=G1,G5 takes some of them; PLANS=200 times fewer. LENGTHS=file compares balancers on lengths of your own: go run ./bench/plan -h
bench-plan: build ## the planner's goals in one table beside baselines of the same run; what balance is worth in wall time
	GOMAXPROCS=1 go run ./bench/plan $(if $(GOALS),-goals $(GOALS)) $(if $(PLANS),-plans $(PLANS)) $(if $(LENGTHS),-lengths $(LENGTHS))
ifeq ($(GOALS)$(LENGTHS),)
	@tools/venv.sh .venv tools/requirements-test.txt
	.venv/bin/python bench/balance.py --millrace ./millrace
endif

# LONG=1 takes hours: thousands of deaths. SECTIONS=takeover,cost takes some of it.
bench-failover: ## deaths of loaders and of everything: how long, what trainers notice, what shadows cost, peers beside it
	bench/failover.sh $(if $(LONG),--long) $(if $(SECTIONS),--sections $(SECTIONS))

bench-handover: build ## hand-over time and trainer CPU for each batch
	@tools/venv.sh .venv tools/requirements-test.txt
	.venv/bin/python bench/handover.py

# One seed is one run; a failing seed is run again by itself with FAULTS=1 SEED=it.
chaos: ## FAULTS=200 SEED=1: kill, stop, starve and fill the disks of real processes; RECORD=1 writes the totals down
	@tools/venv.sh .venv-e2e e2e/requirements.txt
	.venv-e2e/bin/python e2e/chaos.py --faults $(or $(FAULTS),200) --seed $(or $(SEED),1) $(if $(RECORD),--record)

mutants: ## break the product on purpose, in one place at a time; the simulation or the checker has to notice. ONLY=name,name
	@tools/venv.sh .venv-e2e e2e/requirements.txt
	go run ./internal/verify/mutants $(if $(ONLY),-only $(ONLY))

fuzz: ## run every fuzz target for FUZZTIME (20s)
	@tools/fuzz.sh

clean: ## remove build outputs and the Python environments
	rm -rf millrace build .venv .venv-e2e .venv-bench
