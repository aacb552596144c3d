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
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

setup: ## Build .venv from the lock file (only a Python 3.12 is needed)
	@sh tools/bootstrap.sh
	@[ -e .venv/.loops ] || { $(PY) -m datakit.compile_ahead && touch .venv/.loops; } # the first run need not wait ten seconds for them

ferry: setup ## Materialize today's smoke ferry and show what it did
	@./marin ferry

bison: setup ## Replay the Bison incident: a leaked test set, a stale cache, the audit, two shuffles (some minutes)
	@$(PY) -m scenarios bison

histories: setup ## Replay the 32B run at a thousandth: phase 1, QK-norm, Bison and Mantis, with a page (some minutes); goes on where it was killed
	@$(PY) -m scenarios histories

isoflop: setup ## A law by real runs: rates, 32 trials, forecasts frozen before four held-out runs, verdicts, a page (two hours); goes on where it was killed
	@$(PY) -m benchmarks.science.isoflop

isoflop-longer: setup ## The same with a target of ten times the largest budget (over an hour more); reuses what make isoflop made
	@$(PY) -m benchmarks.science.isoflop --study longer

isoflop-rehearsal: setup ## The same command at a hundredth of the cost, to see that it works; its law is of no use (some minutes)
	@$(PY) -m benchmarks.science.isoflop --study rehearsal .marin/isoflop-rehearsal

coverage: setup ## How often 90 % intervals hold in 400 simulated sweeps of each of four laws (about ten minutes)
	@$(PY) -m benchmarks.science.coverage $(or $(SWEEPS),400)

moe: setup ## Dense and mixture of experts, three seeds each, with a page of curves and loads (half an hour); goes on where it was killed
	@$(PY) -m scenarios moe

moe-study: setup ## The claim: rates tuned alike, then eight fresh paired seeds, with intervals (two hours); goes on where it was killed
	@$(PY) -m scenarios moe-study

post-train: setup ## Two-digit addition: imitation, then RLOO, GRPO and a control; DPO; one seed, with a page (20 minutes); goes on where it was killed
	@$(PY) -m scenarios post-train

post-train-study: setup ## The same with three seeds, imitation of own right answers, two controls of DPO, and pass@k to 128 (two hours); goes on where it was killed
	@$(PY) -m scenarios post-train-study

swarm: setup ## Search a mixture: 38 trials over six sources, a frozen proposal, 24 runs by fresh seeds, a page (20 minutes of two idle cores); goes on where it was killed
	@$(PY) -m scenarios swarm

canary-lock: setup ## Train the canary under LOCK=requirements.next.lock too (built into .venv-candidate): losses equal? speed? STEPS=60 is quicker
	@sh tools/bootstrap.sh $(LOCK) .venv-candidate
	@./marin canary --against .venv-candidate/bin/python $(if $(STEPS),--steps $(STEPS))

site: setup ## Write the lab's public site, static pages, into .marin/site
	@./marin site --into .marin/site

ui: setup ## Dagster UI on 127.0.0.1:3000; schedules and sensors are off until switched on there (or MARIN_AUTOMATION=on)
	@./marin ui

wheel: setup ## Build dist/marin_lab-VERSION-py3-none-any.whl: the lab for other repositories, under the import name marin_lab
	@$(PY) tools/build_wheel.py dist

extras: ## Build .venv-extras, which has the optional packages too, for the tests that need them
	@sh tools/bootstrap.sh requirements-extras.lock .venv-extras

test: setup ## Run the fast tests: every promise at least once
	@$(PY) -m pytest -n 2 $(COMPILING); first=$$?; $(PY) -m pytest -n 3 $(COMPILING:%=--ignore=%) && exit $$first

libtpu: setup ## Install the compiler of TPUs into .libtpu for the long tests (137 MB, once)
	@sh tools/libtpu.sh

test-long: setup extras libtpu ## Run the slow tests, every property with 150 examples, and the tests of optional packages in .venv-extras
	@$(PY) -m pytest -n 4 -m '(slow or hypothesis) and not cluster' --hypothesis-profile long -o faulthandler_timeout=900
	@.venv-extras/bin/python -m pytest -n 2 -m 'not cluster' $(OF_EXTRAS)

scale-test: extras ## Near-duplicates and paragraphs by one worker, by two, and by a real Ray cluster that loses a machine: digests, bytes (some minutes); the plan of the catalogue
	@.venv-extras/bin/python -m benchmarks.scale_test --mb $(or $(MB),40)
	@.venv-extras/bin/python -m marin_assets.cli plan-data --containment

cluster-test: setup ## Jobs, gangs and a run on a real Kubernetes API server; builds the control plane once (minutes; needs root and Debian's sources)
	@[ -n "$$MARIN_KUBECONFIG" ] || bash tests/lab/build_kube.sh
	@$(PY) -m pytest -n 0 -m cluster -o faulthandler_timeout=900 tests/lab/test_launches.py tests/lab/test_gangs.py tests/lab/test_run_in_pods.py \
		tests/lab/test_trials_in_pods.py tests/lab/test_indexed.py tests/lab/test_indexed_whole.py tests/lab/test_rights.py \
		tests/lab/test_two_hosts_in_pods.py

cluster-ferry: setup ## Today's smoke ferry through Kubernetes Jobs, a bucket and PostgreSQL, held to the local ferry (a quarter of an hour); RUNNERS=2 gives data stages to Indexed Jobs
	@bash tests/lab/build_kube.sh
	@PYTHONPATH=$(CURDIR):tests/lab $(PY) tests/lab/cluster_ferry.py --data-runners $(or $(RUNNERS),0)

chaos: setup ## Kill what can be killed at 20 random moments of a run of two hosts, and compare its checkpoints
	@bash tests/lab/build_kube.sh
	@PYTHONPATH=$(CURDIR):tests/lab:tests/shell $(PY) tests/lab/chaos.py

image-test: setup ## The image's environment: the production instance, runs as pods; the store against another GCS server (downloads; needs root)
	@[ -n "$$MARIN_KUBECONFIG" ] || bash tests/lab/build_kube.sh
	@$(PY) -m pytest -n 0 -m cluster tests/deploy/test_image_environment.py tests/lab/test_fake_gcs.py tests/lab/test_run_pods.py

purge-study: setup ## 1,000 random graphs with random pins through purge, restore and settlement, beside builders and readers (some minutes)
	@$(PY) -m pytest -n 2 tests/operations/test_purge.py tests/operations/test_purge_at_work.py --hypothesis-profile thousand -o faulthandler_timeout=3000

fuzz: setup ## 100,000 hostile inputs each to manifests, readers, model files, the HTTP service, specs and chat templates (an hour or more)
	@$(PY) -m fuzz $(TARGETS) --inputs $(or $(INPUTS),100000)

check: setup ## Format, lint, types, lock file, import directions, definitions, fast tests
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

format: setup ## Format and sort imports
	@.venv/bin/ruff format . && .venv/bin/ruff check --fix .

lock: setup ## Resolve pyproject.toml again into requirements.lock, the image's deploy/requirements.lock and requirements-extras.lock
	@.venv/bin/uv lock --quiet --python $(PY)
	@.venv/bin/uv export --quiet --format requirements-txt --no-header --no-annotate --no-emit-project -o requirements.lock > /dev/null
	@.venv/bin/uv export --quiet --format requirements-txt --no-header --no-annotate --no-emit-project \
		--extra cluster --no-default-groups -o deploy/requirements.lock > /dev/null
	@.venv/bin/uv export --quiet --format requirements-txt --no-header --no-annotate --no-emit-project \
		--extra datatrove --extra embeddings --extra standards --extra gym --extra ray --extra search -o requirements-extras.lock > /dev/null
	@sh tools/lock_accelerators.sh

clean: ## Delete the environments and what tests keep between runs (.pytest_cache); artifacts under .marin stay
	@rm -rf .venv .venv-extras .pytest_cache
