# The front door. `make` prints this help; every target is enough on its own on a fresh Debian or Ubuntu.
SHELL := /bin/bash
BUILD ?= build
PRESET ?= release
JOBS ?= $(shell nproc)
DIR := $(BUILD)/$(PRESET)
PACKAGES := g++ cmake ninja-build pkg-config openmpi-bin libopenmpi-dev libibverbs-dev libssl-dev libopenblas-dev libboost-context-dev iproute2 bubblewrap catch2 libcli11-dev libfmt-dev nlohmann-json3-dev python3 codespell
TORCH_PACKAGES := python3-torch python3-numpy python3-setuptools libtorch-dev pybind11-dev python3-dev libblas3
VM_PACKAGES := $(if $(filter x86_64,$(shell uname -m)),qemu-system-x86 busybox-static ibverbs-providers xz-utils zstd)  # the VM is an x86-64 one
PREFIX ?= $(if $(filter 0,$(shell id -u)),/usr/local,$(HOME)/.local)
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

.DEFAULT_GOAL := help
.PHONY: help core-path deps deps-vm configure build install train doctor test test-kills test-resume test-per-step test-neighbours bench nvcc-check test-planted nccl test-nccl test-rdma test-nodes test-slurm test-arm64 test-bf16 test-gpu test-template torch own-ring torch-on-my-ring test-torch lessons ledger figures slides test-slides book test-book offline-bundle lint format sanitize fuzz clean

help: ## this list
	@echo "ringsmith: data-parallel training from scratch. Targets:"
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  \1|\2/' | awk -F'|' '{printf "%-17s %s\n", $$1, $$2}'

deps: ## install what is missing (apt; elsewhere print the list and stop)
	@.ci/deps $(PACKAGES)

deps-vm: deps  # for the RDMA tests, which say NOT RUN where these cannot be had
	@.ci/deps $(VM_PACKAGES) || echo "make: going on without $(VM_PACKAGES): the RDMA tests will not run" >&2

configure: deps
	@mkdir -p "$(BUILD)" 2>/dev/null && test -w "$(BUILD)" || { echo "make: cannot write to '$(BUILD)': make BUILD=/a/folder/of/yours $(MAKECMDGOALS)" >&2; exit 1; }
	@cmake --preset $(PRESET) -B "$(DIR)" -G Ninja $(CMAKE_ARGS) > "$(BUILD)/configure.log" 2>&1 || { cat "$(BUILD)/configure.log"; exit 1; }

build: configure ## compile everything into build/release
	@cmake --build "$(DIR)" --parallel $(JOBS)

install: configure ## headers, library, ringrun and other programs into PREFIX, for your own program
	@mkdir -p "$(DESTDIR)$(PREFIX)" 2>/dev/null && test -w "$(DESTDIR)$(PREFIX)" || { echo "make: cannot write to '$(DESTDIR)$(PREFIX)': make install PREFIX=/a/folder/of/yours" >&2; exit 1; }
	@cmake --build "$(DIR)" --parallel $(JOBS) --target installed
	@cmake --install "$(DIR)" --prefix "$(PREFIX)" > "$(BUILD)/install.log"
	@echo "ringsmith is in $(PREFIX): cmake -DCMAKE_PREFIX_PATH=$(PREFIX), PATH=$(PREFIX)/bin:\$$PATH"

train: configure ## train a byte-level GPT on the repository's own text, 2 ranks (under 3 minutes)
	@cmake --build "$(DIR)" --parallel $(JOBS) --target train_gpt
	@RINGSMITH_DEADLINE=0 tests/support/mpirun.sh 2 "$(DIR)"/bin/train_gpt

doctor: configure ## what this machine lets a job do, and how two ranks on it are connected
	@cmake --build "$(DIR)" --parallel $(JOBS) --target doctor ringrun
	@"$(DIR)"/bin/ringrun --standalone --no-prefix --nproc-per-node 2 -- "$(DIR)"/bin/doctor

torch: deps ## a backend of torch.distributed, in build/torch (labs/torch); installs PyTorch
	@.ci/deps $(TORCH_PACKAGES)
	@mkdir -p "$(BUILD)/torch"
	@cmake -S labs/torch -B "$(BUILD)/torch" -G Ninja > "$(BUILD)/torch/configure.log" 2>&1 || { cat "$(BUILD)/torch/configure.log"; exit 1; }
	@cmake --build "$(BUILD)/torch" --parallel $(JOBS)
	@echo "torch: built. Try it:   PYTHONPATH=$(abspath $(BUILD))/torch /usr/bin/python3 labs/torch/train.py --ranks 2"
	@echo "In a program of yours:  import ringsmith_torch; torch.distributed.init_process_group(\"ringsmith\")"

own-ring: deps ## your ring of lab 06 as a shared object, for --schedule work/06-ring (LAB06=ref: the course's)
	@python3 labs/torch/own_ring/compile.py

torch-on-my-ring: torch own-ring ## your ring of lab 06 trains PyTorch's MLP, after the checker has proved it
	@RINGSMITH_TORCH_BUILD="$(abspath $(BUILD))/torch" /usr/bin/python3 labs/torch/own_ring/on_my_ring.py

test-torch: torch ## the backend against gloo: collectives, DDP, 20 kills, PyTorch's own tests; then MLP beside gloo
	@RINGSMITH_TORCH_BUILD="$(abspath $(BUILD))/torch" tests/torch/run.sh
	@RINGSMITH_TORCH_BUILD="$(abspath $(BUILD))/torch" /usr/bin/python3 tests/bench/torch_ddp.py

test: deps-vm build ## every test that this machine can run
	@tests/support/run_tests.py "$(DIR)" --parallel $$(($(JOBS) + 1))

test-kills: deps-vm build ## kill -9 at 200 random moments over shm, 200 over TCP, 200 over RDMA (in the VM)
	@for transport in shm tcp; do \
	  RINGSMITH_TEST_KILLS=200 RINGSMITH_TEST_TRANSPORT=$$transport "$(DIR)"/bin/tests_fault "[kills]" || exit 1; done
	@RINGSMITH_TEST_KILLS=200 RINGSMITH_VM_SECONDS=2400 tests/rdma/run.sh kills 2 "$(DIR)"/vm

test-per-step: build ## train --per-step for 3 minutes on each transport while a random rank is killed every 10 s: figures
	@"$(DIR)"/bin/tests_launch "[per_step_kills]"

test-resume: build ## kill -9 at 200 random moments of trainings that keep checkpoints; each must end with the same bits
	@RINGSMITH_TEST_KILLS=200 "$(DIR)"/bin/tests_apps "[resume_kills]"

test-neighbours: build ## (best as root) 100 attacks of each kind on jobs, by another user and by the same user
	@RINGSMITH_TEST_NEIGHBOURS=100 "$(DIR)"/bin/tests_fault "[neighbours]"

bench: build ## tables compared with the peers: medians of alternating runs
	@tests/bench/run.sh "$(DIR)"

nvcc-check: configure ## compile all .cu files by nvcc for 75, 80 and 90, not run; check registers, spills, scopes
	@cmake --build "$(DIR)" --parallel $(JOBS) --target nvcc_check
	@[ ! -d "$(DIR)/nvcc_check" ] || tests/gpu/compiled.py "$(DIR)/nvcc_check" $(if $(UPDATE),--update)

test-planted: configure ## mistakes in copies of kernels, one by one: the tests must find each (long)
	@cmake --build "$(DIR)" --parallel $(JOBS) --target tests_kernels_cuda
	@tests/kernels/cuda/planted.py "$(DIR)"

nccl: configure ## libringsmith_nccl.so, NCCL's interface on our rings, in build/release/nccl; how to build against it
	@cmake --build "$(DIR)" --parallel $(JOBS) --target ringsmith_nccl
	@sed 's|@NCCL@|$(abspath $(DIR))/nccl|g' labs/nccl/usage.txt

test-nccl: configure ## all of NCCL's interface: 2 to 8 devices, 8 B to 1 MiB, every type and reduction, failures
	@cmake --build "$(DIR)" --parallel $(JOBS) --target nccl_client
	@tests/nccl/run.py all "$(DIR)"

test-rdma: deps-vm build ## all of RDMA, in a VM with soft-RoCE devices (make test has the shorter half)
	@tests/support/run_tests.py "$(DIR)" -C rdma -L rdma

test-nodes: build ## TCP between network namespaces (as root): all collectives on four, long cuts
	@tests/support/run_tests.py "$(DIR)" -C nodes -L nodes

test-slurm: build ## a Slurm of two nodes in network namespaces: installs Slurm, takes a minute
	@.ci/deps slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge iproute2
	@tests/support/run_tests.py "$(DIR)" -L slurm

test-template: configure ## labs/template as your own program: installed, as a subproject, as other users have it
	@cmake --build "$(DIR)" --parallel $(JOBS) --target installed
	@tests/support/run_tests.py "$(DIR)" -C package -L package

test-arm64: deps ## on x86: build for arm64, and run what an emulated processor can (ROOMS="base comm": those)
	@.ci/deps g++-aarch64-linux-gnu qemu-user-static mmdebstrap
	@JOBS=$(JOBS) tests/arm64/run.sh "$(BUILD)" $(ROOMS)

test-bf16: deps ## on x86: bf16 products on emulated processors that have AVX-512-BF16 and AMX (Bochs with Linux)
	@.ci/deps mmdebstrap debian-archive-keyring gzip
	@JOBS=$(JOBS) tests/bf16/run.sh "$(BUILD)"

test-gpu: deps ## on a machine with NVIDIA devices: build by nvcc, test, check, measure; adds to tests/gpu/RESULTS.md
	@tests/gpu/run.sh

offline-bundle: ## one archive for a cluster node without internet: sources and packages
	@tests/gpu/bundle.sh

lessons: build ## run and check all lessons (make lessons UPDATE=1 rewrites what they quote; ONLY=06: one)
	@python3 tests/lessons/check.py all --build "$(DIR)" $(if $(UPDATE),--update) $(if $(ONLY),--only $(ONLY))

ledger: configure ## what tutorials claim and what settles it here (UPDATE=1: write the page; RAN=FILE: did it run?)
	@python3 tests/lessons/ledger.py --build "$(DIR)" $(if $(UPDATE),--update) $(if $(RAN),--ran "$(RAN)")

core-path: ## the files to read in a week, in order, with their lines (UPDATE=1: into the README)
	@python3 tests/lessons/core_path.py $(if $(UPDATE),--update)

figures: build ## draw the lessons' figures again (MEASURED=1: the measured ones too)
	@python3 tests/lessons/check.py figures --update --build "$(DIR)" $(if $(MEASURED),--measured)

slides: ## the decks as HTML and PDF in build/slides (npm, chromium; half a minute)
	@.ci/slides-deps
	@slides/build.sh "$(BUILD)"/slides $(ONLY)

test-slides: slides ## every built slide in headless Chromium: nothing overflows, no figure is missing
	@slides/overflow.py "$(BUILD)"/slides

book: configure ## lessons, labs and live figures as a site in build/book (npm, emscripten; minutes the first time)
	@.ci/book-deps
	@cmake --build "$(DIR)" --parallel $(JOBS) --target book_figures
	@lessons/book/build.sh "$(BUILD)" "$(DIR)"/bin

test-book: book ## the site in headless Chromium: every page and link; live figures compared with the programs
	@.ci/slides-deps
	@node tests/book/look.mjs "$(BUILD)"/book "$(DIR)"/bin $(if $(PICTURES),--pictures "$(PICTURES)")

lint: ## clang-format, include direction, file sizes (make lint TIDY=1: clang-tidy too)
	@.ci/deps clang-format $(if $(TIDY),clang-tidy clang)
	@.ci/lint $(if $(TIDY),--tidy)

format: ## rewrite all sources with clang-format
	@git ls-files --cached --others --exclude-standard '*.hpp' '*.cpp' '*.cu' '*.cuh' '*.h' | xargs clang-format -i

sanitize: ## all tests under ASan+UBSan, comm and data under TSan
	@.ci/sanitize

fuzz: deps ## 10 million hostile bytes for the store, under AddressSanitizer
	@cmake --preset asan -G Ninja >/dev/null && cmake --build build/asan --parallel $(JOBS) --target fuzz_store
	@build/asan/bin/fuzz_store 10000000

clean: ## remove everything that was built
	rm -rf "$(BUILD)"

include labs/course/labs.mk
