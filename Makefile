# The commands for users. `make` lists the targets. Each target works by itself on a fresh Debian or Ubuntu.
include labs/course/words.mk
SHELL := /bin/bash
BUILD ?= build
PRESET ?= release
# JOBS: number of concurrent compilers. If it is empty, .ci/compile derives it from the processors and the free memory.
JOBS_ASKED := $(JOBS)
JOBS := $(or $(JOBS_ASKED),$(shell nproc))
ifneq ($(shell [[ '$(subst ','"'"',$(JOBS_ASKED))' =~ ^([1-9][0-9]*)?$$ ]] || echo wrong),)
$(error JOBS=$(JOBS_ASKED) is not a number of jobs: for instance make JOBS=2)
endif
DIR := $(BUILD)/$(PRESET)
# PACKAGES: all packages that `make test` needs. NOT_TO_TRAIN: those among them without which the programs can be built
# and run. `make train` is a newcomer's first command, and waits for each package that it installs.
PACKAGES := g++ cmake ninja-build ccache pkg-config openmpi-bin libopenmpi-dev libibverbs-dev libssl-dev libopenblas-dev libboost-context-dev iproute2 bubblewrap catch2 libcli11-dev libfmt-dev nlohmann-json3-dev python3 codespell
NOT_TO_TRAIN := openmpi-bin libopenmpi-dev libboost-context-dev pkg-config libopenblas-dev iproute2 bubblewrap catch2 python3 codespell
TORCH_PACKAGES := python3-torch python3-numpy python3-setuptools libtorch-dev pybind11-dev python3-dev libblas3
# The VM is for x86-64.
VM_PACKAGES := $(if $(filter x86_64,$(shell uname -m)),qemu-system-x86 busybox-static ibverbs-providers xz-utils zstd)
# The program that `make train` runs: its target, and its path in the build folder.
TRAIN_TARGET := train_gpt_cpu
TRAIN_PROGRAM := bin/cpu/train_gpt
RUNS := runs
PREFIX ?= $(if $(filter 0,$(shell id -u)),/usr/local,$(HOME)/.local)
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

# For error messages, which say what to type.
export GOALS := $(MAKECMDGOALS)
CONFIGURE := .ci/configure "$(DIR)" "$(PRESET)" $(CMAKE_ARGS)
# Recipes append the targets. Compilations in the same folder wait for each other.
COMPILE := JOBS="$(JOBS_ASKED)" .ci/compile "$(DIR)"

# Without a rule, `make tests` would do nothing and succeed, because there is a folder of this name.
FOLDERS := tests labs kernels runtime

.DEFAULT_GOAL := help
.NOTPARALLEL:  # two targets would build in the same folder; each build is parallel by itself
.PHONY: help packages core-path deps deps-train deps-vm deps-labs configure build install uninstall train doctor test test-all test-systems test-kills test-resume test-per-step test-neighbours test-sweeps bench nvcc-check nvcc-build test-planted nccl test-nccl test-rdma test-nodes test-slurm test-arm64 test-bf16 test-gpu test-template torch own-ring torch-on-my-ring test-torch lessons ledger figures slides test-slides book test-book offline-bundle lint format hooks sanitize fuzz clean $(FOLDERS)

help: ## this list (ALL=1: with a description of every target)
	@.ci/help $(MAKEFILE_LIST)

packages:  # prints the list for scripts
	@echo $(PACKAGES)

deps: ## install the packages that all targets below need (apt; elsewhere list them and stop)
	@.ci/deps $(PACKAGES)

deps-train:
	@.ci/deps $(filter-out $(NOT_TO_TRAIN),$(PACKAGES))

deps-vm:  # all, and the packages for the RDMA tests, which report NOT RUN without them
	@.ci/deps $(PACKAGES) --or-without $(VM_PACKAGES)

deps-labs:  # a student may not be allowed to install bubblewrap
	@.ci/deps g++ python3 --or-without bubblewrap libboost-context-dev libfmt-dev

configure: deps
	@$(CONFIGURE)

build: configure ## compile everything into build/release
	@$(COMPILE)

install: configure ## install headers, library, ringrun into PREFIX
	@.ci/install writable "$(PREFIX)"
	@$(COMPILE) installed
	@.ci/install copy "$(PREFIX)" "$(DIR)"

uninstall: ## remove what make install has put into PREFIX
	@.ci/install remove "$(PREFIX)"

train: deps-train ## train a byte-level GPT on the repository's own text, 2 ranks
	@mkdir -p "$(RUNS)" 2> /dev/null; [ -d "$(RUNS)" ] && [ -w "$(RUNS)" ] || \
	  { echo "make: cannot write to '$(RUNS)', where the run's files go: make train RUNS=/a/folder/of/yours" >&2; exit 1; }
	@$(CONFIGURE)
	@$(COMPILE) $(TRAIN_TARGET) ringrun
	@"$(DIR)"/bin/ringrun --standalone --no-prefix --nproc-per-node 2 -- "$(DIR)/$(TRAIN_PROGRAM)" --run-dir "$(RUNS)"/$$(date +%Y%m%d-%H%M%S)

doctor: configure ## report what this machine allows; measure two ranks' link
	@$(COMPILE) doctor ringrun
	@"$(DIR)"/bin/ringrun --standalone --no-prefix --nproc-per-node 2 -- "$(DIR)"/bin/doctor

torch: deps ## backend of torch.distributed (labs/torch); installs PyTorch
	@.ci/deps $(TORCH_PACKAGES)
	@mkdir -p "$(BUILD)/torch"
	@cmake -S labs/torch -B "$(BUILD)/torch" -G Ninja > "$(BUILD)/torch/configure.log" 2>&1 || { cat "$(BUILD)/torch/configure.log"; exit 1; }
	@JOBS="$(JOBS_ASKED)" .ci/compile "$(BUILD)/torch"
	@echo "torch: built. Try it:   PYTHONPATH=$(abspath $(BUILD))/torch /usr/bin/python3 labs/torch/train.py --ranks 2"
	@echo "In a program of yours:  import ringsmith_torch; torch.distributed.init_process_group(\"ringsmith\")"

own-ring: deps ## compile your ring of lab 06 for --schedule work/06-ring (LAB06=ref: the course's)
	@python3 labs/torch/own_ring/compile.py

torch-on-my-ring: torch own-ring ## train PyTorch's MLP on your ring of lab 06, after the checker has proved it
	@RINGSMITH_TORCH_BUILD="$(abspath $(BUILD))/torch" /usr/bin/python3 labs/torch/own_ring/on_my_ring.py

test-torch: torch ## test the backend against gloo: collectives, DDP, 20 kills, PyTorch's own tests; then compare an MLP
	@$(CONFIGURE)
	@$(COMPILE) ringrun
	@RINGSMITH_TORCH_BUILD="$(abspath $(BUILD))/torch" RINGSMITH_RINGRUN="$(abspath $(DIR))/bin/ringrun" tests/torch/run.sh

# Builds and runs a tier, or the rooms named by ONLY, which are searched in both tiers.
define tests
	@targets=$$(tests/support/run_tests.py "$(DIR)" $(1) --targets) && $(COMPILE) $$targets
	@tests/support/run_tests.py "$(DIR)" --parallel $$((2 * ($(JOBS) + 1))) $(1)
endef

test: configure ## check that ringsmith works here (ONLY=comm: one room)
	$(call tests,$(if $(ONLY),--only "$(ONLY)",--tier quick))

test-all: deps-vm configure ## all tests for this machine (REST=1: without make test)
	$(call tests,--tier $(if $(REST),rest,all))

test-systems: ## (as root) run both commands of the README on bare Debian systems, with g++ and clang
	@tests/systems/run.sh $(ROWS)

test-kills: deps-vm build ## kill -9 at 200 random moments each over shm, TCP and RDMA (in the VM)
	@for transport in shm tcp; do \
	  RINGSMITH_TEST_KILLS=200 RINGSMITH_TEST_TRANSPORT=$$transport "$(DIR)"/bin/tests_fault "[kills]" || exit 1; done
	@RINGSMITH_TEST_KILLS=200 RINGSMITH_VM_SECONDS=2400 tests/rdma/run.sh kills 2 "$(DIR)"/vm

test-per-step: build ## train --per-step for 3 minutes on each transport while a random rank is killed every 10 s; prints figures
	@"$(DIR)"/bin/tests_launch "[per_step_kills]"

test-resume: build ## kill -9 at 200 random moments of training runs with checkpoints; each must end with the same bits
	@RINGSMITH_TEST_KILLS=200 "$(DIR)"/bin/tests_apps "[resume_kills]"

test-neighbours: build ## (best as root) attack jobs as another user and as the same user, 100 times in each way
	@RINGSMITH_TEST_NEIGHBOURS=100 "$(DIR)"/bin/tests_fault "[neighbours]"

test-sweeps: build ## (best as root) extreme numbers, odd files as outputs, closed streams, ignored signals
	@tests/attacks/sweep.py "$(DIR)"

bench: build ## measure against the peers: medians of alternating runs
	@tests/bench/run.sh "$(DIR)"

nvcc-check: configure ## compile all .cu files by nvcc for 75, 80 and 90 (not run); check registers, spills, scopes, budgets
	@$(COMPILE) nvcc_check
	@[ ! -d "$(DIR)/nvcc_check" ] || tests/gpu/compiled.py "$(DIR)/nvcc_check" $(if $(UPDATE),--update)

nvcc-build: deps ## build by nvcc all that test-gpu runs, for compute capability 90 (not run)
	@if command -v nvcc > /dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then \
	  cmake --preset gpu -B "$(BUILD)/gpu" -G Ninja -DRINGSMITH_CUDA_ARCHITECTURES=90 > /dev/null && \
	  cmake --build "$(BUILD)/gpu" --parallel $(JOBS) --target gpu_programs && \
	  echo "nvcc-build: the programs in $(BUILD)/gpu/bin were built, not run"; \
	else echo "nvcc-build: nvcc was not found: NOT built"; fi

test-planted: configure ## plant mistakes in copies of kernels, one by one; the tests must find each (long)
	@$(COMPILE) tests_kernels_cuda tests_comm_cuda
	@tests/kernels/cuda/planted.py "$(DIR)"

nccl: configure ## libringsmith_nccl.so: NCCL's interface on our rings
	@$(COMPILE) ringsmith_nccl
	@sed 's|@NCCL@|$(abspath $(DIR))/nccl|g' labs/nccl/usage.txt

test-nccl: configure ## test all of NCCL's interface: 2 to 8 devices, 8 B to 1 MiB, every type and reduction, failures
	@$(COMPILE) nccl_client
	@tests/nccl/run.py all "$(DIR)"

test-rdma: deps-vm build ## test all of RDMA in a VM with soft-RoCE devices (make test-all has the shorter half)
	@tests/support/run_tests.py "$(DIR)" -C rdma --only rdma

test-nodes: build ## test TCP between network namespaces (as root): all collectives on four, long cuts
	@tests/support/run_tests.py "$(DIR)" -C nodes --only nodes

test-slurm: build ## test on a Slurm of two nodes in network namespaces: installs Slurm, takes a minute
	@.ci/deps slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge iproute2
	@tests/support/run_tests.py "$(DIR)" --only slurm

test-template: configure ## test labs/template as your own program: installed, as a subproject, as other users have it
	@$(COMPILE) installed
	@tests/support/run_tests.py "$(DIR)" -C package --only package

test-arm64: deps ## on x86: build for arm64, and run the tests that an emulated processor can run (ROOMS="base comm": only these)
	@.ci/deps g++-aarch64-linux-gnu qemu-user-static mmdebstrap
	@JOBS=$(JOBS) tests/arm64/run.sh "$(BUILD)" $(ROOMS)

test-bf16: deps ## on x86: test bf16 products on emulated processors with AVX-512-BF16 and AMX (Bochs with Linux)
	@.ci/deps mmdebstrap debian-archive-keyring gzip
	@JOBS=$(JOBS) tests/bf16/run.sh "$(BUILD)"

test-gpu: deps ## with NVIDIA devices: build by nvcc, test, check, measure; adds to tests/gpu/RESULTS.md
	@tests/gpu/run.sh

offline-bundle: ## pack sources and packages for a cluster node without internet
	@tests/gpu/bundle.sh

lessons: build ## run and check the lessons (ONLY=06: one; UPDATE=1: rewrite)
	@python3 tests/lessons/check.py all --build "$(DIR)" $(if $(UPDATE),--update) $(if $(ONLY),--only $(ONLY))

ledger: configure ## check what tutorials claim against its evidence here (UPDATE=1: write the page; RAN=FILE: did it run?)
	@python3 tests/lessons/ledger.py --build "$(DIR)" $(if $(UPDATE),--update) $(if $(RAN),--ran "$(RAN)")

core-path: ## list the files to read in a week, in order, with their lines (UPDATE=1: in the README)
	@python3 tests/lessons/core_path.py $(if $(UPDATE),--update)

figures: build ## redraw the lessons' figures (MEASURED=1: the measured ones too)
	@python3 tests/lessons/check.py figures --update --build "$(DIR)" $(if $(MEASURED),--measured)

slides: ## decks as HTML and PDF in build/slides (npm, chromium)
	@.ci/slides-deps
	@slides/build.sh "$(BUILD)"/slides $(ONLY)

test-slides: slides ## check every slide in headless Chromium: nothing overflows, no figure is missing
	@node slides/overflow.mjs "$(BUILD)"/slides

book: configure ## lessons and labs as a site in build/book (npm, emscripten)
	@.ci/book-deps
	@$(COMPILE) book_figures
	@lessons/book/build.sh "$(BUILD)" "$(DIR)"/bin

test-book: book ## check the site in headless Chromium: pages, links; live figures compared with the programs
	@.ci/slides-deps
	@node tests/book/look.mjs "$(BUILD)"/book "$(DIR)"/bin $(if $(PICTURES),--pictures "$(PICTURES)")

lint: ## check format, includes, sizes (TIDY=1: clang-tidy too)
	@.ci/deps clang-format $(if $(TIDY),clang-tidy clang)
	@.ci/lint $(if $(TIDY),--tidy)

format: ## format all sources with clang-format
	@.ci/deps clang-format
	@.ci/lint --format

hooks: ## let git check format, includes and message of each commit
	@git config core.hooksPath .ci/hooks
	@echo "hooks: .ci/hooks is in use here; git config --unset core.hooksPath ends it"

sanitize: ## run all tests under ASan and UBSan; base, comm, job, data and parallel under TSan
	@.ci/sanitize

fuzz: deps ## send the store 10 million hostile bytes, under AddressSanitizer
	@.ci/configure "$(BUILD)/asan" asan
	@JOBS="$(JOBS_ASKED)" .ci/compile "$(BUILD)/asan" fuzz_store
	@"$(BUILD)"/asan/bin/fuzz_store 10000000

$(FOLDERS):
	@echo "make: '$@' is a folder and no target: make alone lists the targets" >&2; exit 2

clean: ## remove all build outputs
	rm -rf "$(BUILD)"

check grade watch mine grade-the-grader soak mutate: deps-labs
include labs/course/labs.mk
