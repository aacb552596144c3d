# The commands of the lab; each sets up what it needs. See README.md.
SHELL := /bin/sh
export DAGSTER_HOME := $(CURDIR)
export PYTHONPATH := $(CURDIR)
# Containers often set it. Then every process compiles the project again, .7 s each, and every test worker all tests.
unexport PYTHONDONTWRITEBYTECODE
# Tests call numpy outside of stages, which limit it themselves (lineage/build/stage_run.py).
export OPENBLAS_NUM_THREADS := 1
PY := .venv/bin/python
OF_EXTRAS := tests/datakit/test_datatrove_steps.py tests/datakit/test_datatrove_files.py \
	tests/standards/test_croissant_itself.py tests/standards/test_keyless.py tests/lineage/test_ray_tasks.py \
	tests/datakit/test_fasttext_scorer.py tests/datakit/test_contamination_paraphrase.py tests/post_training/test_environments.py \
	tests/datakit/test_semantic_duplicates.py \
	tests/standards/test_export.py::test_a_keyless_signature_of_something_else_is_a_finding tests/science/test_search.py
# Tests that compile programs. They run in workers of their own, which stay small: no worker imports and collects all tests.
COMPILING := tests/evals tests/post_training tests/trainer
PACKAGES := lineage datakit trainer serving evals science recipes marin_assets resources sensors jobs partitions scenarios standards operations post_training

.PHONY: help setup wheel extras libtpu ferry bison histories isoflop isoflop-longer isoflop-rehearsal coverage moe moe-study post-train post-train-study swarm canary-lock site ui test test-long cluster-test cluster-ferry chaos image-test purge-study fuzz check check-fast format lock scale-test clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo 'A study or a ferry that was interrupted goes on where it stopped: run the same command again.'

setup: ## Build .venv from the lock file
	@sh tools/bootstrap.sh
	@[ -e .venv/.loops ] || { $(PY) -m datakit.compile_ahead && touch .venv/.loops; } # the first run need not wait ten seconds for them

ferry: setup ## Make today's smoke ferry, text to an audited model, and show what it did
	@./marin ferry

bison: setup ## Replay the Bison incident: a leaked test set, a stale cache, the audit (some minutes)
	@$(PY) -m scenarios bison

histories: setup ## Replay the 32B run at a thousandth of its size, with a page (some minutes)
	@$(PY) -m scenarios histories

isoflop: setup ## Fit a law to 32 trials, forecast four larger runs, then train and judge them (two hours)
	@$(PY) -m benchmarks.science.isoflop

isoflop-longer: setup ## make isoflop with a target of ten times the largest budget (one hour more)
	@$(PY) -m benchmarks.science.isoflop --study longer

isoflop-rehearsal: setup ## make isoflop at a hundredth of the cost, to see that it works (some minutes)
	@$(PY) -m benchmarks.science.isoflop --study rehearsal .marin/isoflop-rehearsal

coverage: setup ## How often 90 % intervals hold in 400 simulated sweeps of four laws (ten minutes)
	@$(PY) -m benchmarks.science.coverage $(or $(SWEEPS),400)

moe: setup ## Train dense models and mixtures of experts, three seeds each, with a page (half an hour)
	@$(PY) -m scenarios moe

moe-study: setup ## Compare them after equal tuning, by eight new pairs of seeds, with intervals (two hours)
	@$(PY) -m scenarios moe-study

post-train: setup ## Learn two-digit addition: imitation, RLOO, GRPO, DPO; one seed, with a page (20 minutes)
	@$(PY) -m scenarios post-train

post-train-study: setup ## make post-train with three seeds, more controls and pass@k to 128 (two hours)
	@$(PY) -m scenarios post-train-study

swarm: setup ## Search a mixture of six sources by 38 trials, and confirm it by 24 runs (20 minutes)
	@$(PY) -m scenarios swarm

canary-lock: given-lock setup ## Train the canary under another lock file too, LOCK=FILE, and compare; STEPS=60 is quicker
	@sh tools/bootstrap.sh $(LOCK) .venv-candidate
	@./marin canary --against .venv-candidate/bin/python $(if $(STEPS),--steps $(STEPS))

.PHONY: given-lock
given-lock: # without it tools/bootstrap.sh would take .venv-candidate for the lock file and rebuild .venv from it
	@[ -f "$(LOCK)" ] || { echo "canary-lock: LOCK is '$(LOCK)'; name a lock file: make canary-lock LOCK=requirements.next.lock" >&2; exit 1; }

site: setup ## Write the lab's public site, static pages, into .marin/site
	@./marin site --into .marin/site

ui: setup ## Serve the Dagster UI on 127.0.0.1:3000; MARIN_AUTOMATION=on switches its sensors on
	@./marin ui

wheel: setup ## Build the lab as a wheel for other repositories, in dist/
	@$(PY) tools/build_wheel.py dist

extras: ## Build .venv-extras, with the optional packages, for the tests that need them
	@sh tools/bootstrap.sh requirements-extras.lock .venv-extras

test: setup ## Run the fast tests: every promise at least once
	@$(PY) -m pytest -n 2 $(COMPILING); first=$$?; $(PY) -m pytest -n 3 $(COMPILING:%=--ignore=%) && exit $$first

libtpu: setup ## Install the compiler of TPUs into .libtpu for the long tests (137 MB, once)
	@sh tools/libtpu.sh

test-long: setup extras libtpu ## Run the slow tests, 150 examples of each property, and the tests of optional packages
	@$(PY) -m pytest -n 4 -m '(slow or hypothesis) and not cluster' --hypothesis-profile long -o faulthandler_timeout=900
	@.venv-extras/bin/python -m pytest -n 2 -m 'not cluster' $(OF_EXTRAS)

scale-test: extras ## Compare joins by one worker, by two, and by a Ray cluster that loses a machine (some minutes)
	@.venv-extras/bin/python -m benchmarks.scale_test --mb $(or $(MB),40)
	@.venv-extras/bin/python -m marin_assets.cli plan-data --containment

cluster-test: setup ## Test jobs and runs on a real Kubernetes API server (minutes; needs root, downloads)
	@[ -n "$$MARIN_KUBECONFIG" ] || bash tests/lab/build_kube.sh
	@$(PY) -m pytest -n 0 -m cluster -o faulthandler_timeout=900 tests/lab/test_launches.py tests/lab/test_gangs.py tests/lab/test_run_in_pods.py \
		tests/lab/test_trials_in_pods.py tests/lab/test_indexed.py tests/lab/test_indexed_whole.py tests/lab/test_rights.py \
		tests/lab/test_two_hosts_in_pods.py

cluster-ferry: setup ## Today's ferry by Kubernetes Jobs, compared with the local ferry (15 minutes); RUNNERS=2
	@bash tests/lab/build_kube.sh
	@PYTHONPATH=$(CURDIR):tests/lab $(PY) tests/lab/cluster_ferry.py --data-runners $(or $(RUNNERS),0)

chaos: setup ## Kill parts of a run of two hosts at 20 random moments, and compare its checkpoints
	@bash tests/lab/build_kube.sh
	@PYTHONPATH=$(CURDIR):tests/lab:tests/shell $(PY) tests/lab/chaos.py

image-test: setup ## Test the environment of the image and the store on another GCS server (needs root, downloads)
	@[ -n "$$MARIN_KUBECONFIG" ] || bash tests/lab/build_kube.sh
	@$(PY) -m pytest -n 0 -m cluster tests/deploy/test_image_environment.py tests/lab/test_fake_gcs.py tests/lab/test_run_pods.py

purge-study: setup ## Purge, restore and settle 1,000 random graphs beside builders and readers (some minutes)
	@$(PY) -m pytest -n 2 tests/operations/test_purge.py tests/operations/test_purge_at_work.py --hypothesis-profile thousand -o faulthandler_timeout=3000

fuzz: setup ## Give 100,000 hostile inputs to each reader of untrusted files (an hour); TARGETS=, INPUTS=
	@$(PY) -m fuzz $(TARGETS) --inputs $(or $(INPUTS),100000)

check: setup ## Format, lint, types, imports, the lock file, the definitions, fast tests
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/pyrefly check
	@sh tools/check_lock.sh
	@$(PY) -m pytest -q tests/test_imports.py
	@mkdir -p .marin/dagster && .venv/bin/dagster definitions validate -w workspace.yaml 2>&1 | tail -n 2
	@$(MAKE) --no-print-directory test

check-fast: setup ## Format, lint, types, imports, and the tests that the changes since main can affect
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/pyrefly check
	@$(PY) -m pytest -n 2 tests/test_imports.py $$($(PY) tools/affected_tests.py 25)

format: setup ## Format the code and sort imports
	@.venv/bin/ruff format . && .venv/bin/ruff check --fix .

lock: setup ## Resolve pyproject.toml again into all lock files
	@.venv/bin/uv lock --quiet --python $(PY)
	@.venv/bin/uv export --quiet --format requirements-txt --no-header --no-annotate --no-emit-project -o requirements.lock > /dev/null
	@.venv/bin/uv export --quiet --format requirements-txt --no-header --no-annotate --no-emit-project \
		--extra cluster --no-default-groups -o deploy/requirements.lock > /dev/null
	@.venv/bin/uv export --quiet --format requirements-txt --no-header --no-annotate --no-emit-project \
		--extra datatrove --extra embeddings --extra standards --extra gym --extra ray --extra search -o requirements-extras.lock > /dev/null
	@sh tools/lock_accelerators.sh

clean: ## Delete the environments and .pytest_cache; artifacts below .marin stay
	@rm -rf .venv .venv-extras .pytest_cache
