# `make` prints the targets. A target reports each tool that it needs and cannot find.

.DEFAULT_GOAL := help
.PHONY: help build wheel image quick test test-race test-adapters test-pythons test-ray test-k8s test-slurm sim lint gauges generate demo clean
.PHONY: chaos chaos-net outage endurance observe mutants fuzz flips
.PHONY: bench bench-tokenizer bench-stream bench-plan bench-failover bench-delivery bench-scale bench-peers \
	bench-read bench-storage bench-cluster

help: ## print this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# NVML is loaded at run time. Its functions must therefore be bound lazily, which some linkers do not do by default.
build: ## build ./millrace
	go build -ldflags=-extldflags=-Wl,-z,lazy -o millrace ./cmd/millrace

WHEEL_VENV ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/millrace/venv-wheel

# ARCH=amd64 builds one wheel. The environment is outside the checkout, because it has a C compiler of 400 MB.
wheel: ## build the wheels of x86-64 and arm64 into build/wheels, check them, and run the one of this machine
	@tools/wheel.sh $(WHEEL_VENV) build/wheels $(ARCH)
	@tools/venv.sh .venv-e2e e2e/requirements.txt
	@MILLRACE_WHEEL=$$(ls -t build/wheels/*manylinux*_$$(uname -m).whl | head -1) \
		.venv-e2e/bin/python -m pytest -q -p no:cacheprovider e2e/test_install.py

image: ## build an OCI image of x86-64 and arm64 into build/image/millrace.tar, twice, and run it
	@tools/image.sh build/image/millrace.tar
	@tools/image.sh build/image/again.tar
	@tools/venv.sh .venv-e2e e2e/requirements.txt
	@MILLRACE_IMAGE=build/image/millrace.tar MILLRACE_IMAGE_AGAIN=build/image/again.tar \
		.venv-e2e/bin/python -m pytest -q -p no:cacheprovider e2e/test_image.py

test: ## run everything that CI runs: vet, gofmt, Go, arm64 golden tests, Python, end to end. LONG=1 adds long variants
	@tools/test.sh

test-race: ## run the Go tests under the race detector
	go test -race -vet=off -p 2 -timeout 30m ./...

test-stores: ## read files of Azurite and fake-gcs-server; installs both once, Node.js is needed
	@tools/stores.sh

# The environment is outside the checkout, so that another clone does not download the frameworks again.
ADAPTERS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/millrace/venv-adapters
PYTEST_ADAPTERS = MILLRACE=$(CURDIR)/build/millrace $(ADAPTERS)/bin/python -m pytest -q -rs -p no:cacheprovider

# Each line is a run of its own: the client returns torch tensors once torch is imported.
test-adapters: ## run the client and the examples of trainers with the current releases of the frameworks
	@tools/adapters.sh $(ADAPTERS)
	go build -o build/millrace ./cmd/millrace
	$(PYTEST_ADAPTERS) clients/python
	$(PYTEST_ADAPTERS) examples/trainers
	$(PYTEST_ADAPTERS) examples/demo/check_torch.py

# LONG=1 has four nodes beside the head. The environment is outside the checkout.
RAY ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/millrace/venv-ray

test-ray: ## train with Ray Train on Ray nodes in namespaces, and kill what runs there. LONG=1 also cuts a node, kills the head, loses all journals, and lets Ray add nodes
	@MILLRACE_RAY_NODES=$(if $(LONG),4,2) tools/ray.sh $(RAY)

test-k8s: ## install and scale a run on a real Kubernetes without kubelets; the first build of it takes 14 min of CPU
	@tools/test_k8s.sh

test-slurm: ## run the job of examples/cluster on Debian's Slurm, and kill, requeue and lose what runs there
	@tools/test_slurm.sh $(ADAPTERS)

# TOTALS=docs/campaigns-sim.md appends the totals. HOSTS=1 plays only seeds with hosts and etcd. Failed seeds are kept, and `make test` replays them.
sim: ## play SEEDS (10000) seeds of the simulation, from FROM (500) on; TOTALS=file appends a row of totals
	cd verify/sim && go test -count=1 -vet=off -timeout 0 -run '^TestSeeds$$' -args \
		-seeds $(or $(SEEDS),10000) -from $(or $(FROM),500) $(if $(TOTALS),-totals $(abspath $(TOTALS))) \
		$(if $(HOSTS),-hosts)

# BASE=main compares with another commit.
quick: ## build, lint, and test what your change touches: under a minute once it has run
	@tools/quick.sh

lint: ## gofmt, vet, staticcheck, ruff and the architecture test
	@tools/lint.sh
	go test -count=1 ./verify/archtest

gauges: ## print the largest packages and types: files, methods, exported names
	@go test -count=1 -v -run '^TestGauges$$' ./verify/archtest | grep -v '^[=-]'

generate: ## regenerate proto/*.pb.go, the schema and the tables; leaves the tree clean
	@tools/generate.sh

test-pythons: ## run the client's tests on every supported Python of this machine
	@tools/pythons.sh

# DEMO=torch uses the environment of test-adapters.
demo: build ## train a small model on real files of this machine, kill a loader, resume on other ranks
ifeq ($(DEMO),torch)
	@tools/adapters.sh $(ADAPTERS)
	@$(ADAPTERS)/bin/python examples/demo/demo.py --model torch
else
	@tools/venv.sh .venv tools/requirements-test.txt
	@.venv/bin/python examples/demo/demo.py $(if $(DEMO),--model $(DEMO))
endif

bench: bench-tokenizer bench-stream bench-plan bench-delivery bench-failover ## run all benchmarks (docs/benchmarks.md)

bench-tokenizer: ## our tokenizer beside tiktoken and tokenizers
	bench/tokenizer.sh

bench-stream: ## files to trainer: tokens/s beside a peer, start-up, idle CPU, memory
	bench/stream.sh

# SECTIONS=tokens,memory measures some sections. The section shards writes a million files below build/, once.
bench-scale: ## cost, memory and start as sources, shards, ranks and cores grow
	bench/scale.sh $(if $(SECTIONS),--sections $(SECTIONS))

bench-read: ## each format's files read by us and by the format's own reader, in turns; downloads PyTorch once
	bench/read.sh $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

# SECTIONS=reads measures one section.
bench-storage: ## files of an object store with 50 ms latency, cached and not, beside local ones
	bench/storage.sh $(if $(SECTIONS),--sections $(SECTIONS))

bench-peers: ## other loaders over the same files, in turns with ours; downloads PyTorch once
	bench/peers.sh $(if $(SECTIONS),--sections $(SECTIONS))

# GOALS=G1,G5 measures some goals. PLANS=200 times only 200 plans. LENGTHS=file compares balancers on your own lengths;
# `go run ./bench/plan -h` describes the file.
bench-plan: build ## the planner's goals beside baselines of the same run, and the value of balance in wall time
	GOMAXPROCS=1 go run ./bench/plan $(if $(GOALS),-goals $(GOALS)) $(if $(PLANS),-plans $(PLANS)) \
		$(if $(LENGTHS),-lengths $(LENGTHS))
ifeq ($(GOALS)$(LENGTHS),)
	@tools/venv.sh .venv tools/requirements-test.txt
	.venv/bin/python bench/balance.py --millrace ./millrace
endif

# LONG=1 takes hours for thousands of deaths. SECTIONS=takeover,cost measures some sections.
bench-failover: ## takeovers and restarts: their time, the trainers' waits, the cost of shadows, beside peers
	bench/failover.sh $(if $(LONG),--long) $(if $(SECTIONS),--sections $(SECTIONS))

# QUICK=1 makes few trials, LONG=1 has 4,096 clients. SECTIONS=takeover,election,tls,fanout,memory,rivals,ray
# measures some. memory, rivals and ray download PyTorch, TensorFlow and Ray once.
bench-cluster: ## runs on several hosts: faults, TLS, many clients, memory, beside peers; needs namespaces
	bench/cluster.sh $(if $(QUICK),--quick) $(if $(LONG),--long) $(if $(SECTIONS),--sections $(SECTIONS))

# QUICK=1 makes one round of short measurements. SECTIONS=throughput,step measures some sections.
bench-delivery: ## hand-over of batches to trainers beside other loaders, in turns; downloads PyTorch once
	bench/delivery.sh $(if $(QUICK),--quick) $(if $(SECTIONS),--sections $(SECTIONS))

# One seed is one run, so FAULTS=1 SEED=N repeats the run of seed N.
chaos: ## inject FAULTS (200) faults into real processes, from SEED (1) on; RECORD=1 appends the totals
	@tools/venv.sh .venv-e2e e2e/requirements.txt
	.venv-e2e/bin/python e2e/chaos.py --faults $(or $(FAULTS),200) --seed $(or $(SEED),1) $(if $(RECORD),--record)

# ONLY="host lost" injects one kind. KEEP=1 keeps the files of failed runs.
chaos-net: build ## inject FAULTS (30) faults of hosts, networks and etcd into runs on three hosts, from SEED (1) on
	@tools/venv.sh .venv-e2e e2e/requirements.txt
	MILLRACE_ETCD=$$(tools/etcd.sh) .venv-e2e/bin/python e2e/chaos_net.py --binary ./millrace \
		--faults $(or $(FAULTS),30) --seed $(or $(SEED),1) $(if $(ONLY),--only "$(ONLY)") $(if $(KEEP),--keep) \
		$(if $(RECORD),--record)

outage: build ## take etcd's quorum from a run for MINUTES (30); ranks train on for RUNWAY (600) s. RECORD=1
	@tools/venv.sh .venv-e2e e2e/requirements.txt
	MILLRACE_ETCD=$$(tools/etcd.sh) .venv-e2e/bin/python e2e/outage.py --binary ./millrace \
		--minutes $(or $(MINUTES),30) --runway $(or $(RUNWAY),600) $(if $(RECORD),--record)

endurance: build ## train MINUTES (60) from SOURCES (1000) beside LOAD (0) busy processes; nothing may grow
	@tools/venv.sh .venv-e2e e2e/requirements.txt
	.venv-e2e/bin/python e2e/endurance.py --millrace ./millrace --minutes $(or $(MINUTES),60) \
		--sources $(or $(SOURCES),1000) --load $(or $(LOAD),0)

# One of the planted causes: read, decode, tokenise, fetch, build, plan or rank.
observe: build ## plant each slow activity TIMES (20) times; log, stats() and status must name it within 5 s. ONLY=read
	@tools/venv.sh .venv-e2e e2e/requirements.txt
	MILLRACE=$(CURDIR)/millrace MILLRACE_OBSERVE_TIMES=$(or $(TIMES),20) .venv-e2e/bin/python -m pytest -q \
		-p no:cacheprovider e2e/test_observe.py $(if $(ONLY),-k "named and $(ONLY)")

mutants: ## put one mistake at a time into the product; its judge must notice. ONLY=name,name
	@tools/venv.sh .venv-e2e e2e/requirements.txt
	go run ./verify/mutants $(if $(ONLY),-only $(ONLY))

# COUNT=1 SEED=N ONLY=SAMPLE repeats a case. RECORD=1 adds the totals to docs/campaigns.md.
flips: ## damage small files of every format COUNT (100000) times from SEED (1) on, and read them
	go run ./verify/flips -count $(or $(COUNT),100000) -seed $(or $(SEED),1) $(if $(ONLY),-only $(ONLY)) \
		$(if $(RECORD),-record docs/campaigns.md)

# ONLY="sources/format/csv" names targets. RECORD=1 adds the totals to docs/campaigns.md.
fuzz: ## run every fuzz target for FUZZTIME (20s), one after the other
	@tools/fuzz.sh

clean: ## remove build outputs and the Python environments
	rm -rf millrace build .venv .venv-e2e .venv-bench
