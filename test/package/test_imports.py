"""The order of the rooms: imports only point down, nothing imports in a circle."""

import ast
import subprocess
import sys
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter

import pytest

from vlm_decisions.files import resources

PACKAGE = "vlm_decisions"
CONTRACT = {"decision", "questions", "question_book", "kinds", "events", "conditions", "frames",
            "motion", "views", "texts", "model_scope", "reuse"}
#: From the top down; a room may import those below it.
ROOMS = ["commands", "lab", "ros", "viewer", "learn", "runtime", "sources", "engine", "sim",
         "contract", "files"]
#: Who may import what is not everyone's.
ROS = {"rclpy", "rcl_interfaces", "sensor_msgs", "std_msgs", "diagnostic_msgs", "lifecycle_msgs",
       "builtin_interfaces", "launch", "launch_ros", "rosidl_runtime_py", "ament_index_python"}
ROOMS_WITH = {
    **dict.fromkeys(ROS, {"commands", "lab", "ros"}),
    **dict.fromkeys(["mlx", "mlx_vlm"], {"lab", "engine"}),
    "torch": {"lab"},
    "transformers": {"lab", "engine"},  # the tokenizer
    **dict.fromkeys(["starlette", "uvicorn"], {"viewer"}),
}


def room_of(module):
    """Return the room that a module of the package lies in."""
    parts = module.split(".")[1:]
    if not parts or parts[0] in ("cli", "__main__"):
        return "commands"
    return "contract" if parts[0] in CONTRACT else parts[0]


def read_imports():
    """Return by module the modules of the package and, apart, the other packages it imports.

    What the package's root gives (its version) and a package's own __init__, which its modules
    always run first, are no arrows.
    """
    root = resources.package_dir()
    paths = {}
    for path in root.rglob("*.py"):
        parts = (PACKAGE, *path.relative_to(root).with_suffix("").parts)
        if parts[1] not in ("action", "msg", "srv"):
            paths[".".join(parts).removesuffix(".__init__")] = path
    inner, outer = defaultdict(set), defaultdict(set)
    for module, path in paths.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join(base) if node.level else ""
                source = ".".join(filter(None, [base, node.module]))
                names = [f"{source}.{alias.name}" for alias in node.names]
            else:
                continue
            for name in names:
                if name.split(".")[0] != PACKAGE:
                    outer[module].add(name.split(".")[0])
                    continue
                target = next((n for n in (name, name.rpartition(".")[0]) if n in paths), None)
                if target not in (None, PACKAGE, module) and not module.startswith(f"{target}."):
                    inner[module].add(target)
    return inner, outer, set(paths)


@pytest.fixture(scope="module")
def imports():
    return read_imports()


def faults(inner, rooms=ROOMS):
    """Return the imports that point up, as text."""
    order = {room: place for place, room in enumerate(rooms)}
    return [f"{module} imports {target}, from {room_of(module)} up to {room_of(target)}"
            for module, targets in sorted(inner.items()) for target in sorted(targets)
            if order[room_of(target)] < order[room_of(module)]]


def test_every_module_is_in_a_room(imports):
    modules = imports[2]
    assert len(modules) > 100
    assert {room_of(module) for module in modules} == set(ROOMS)


def test_imports_only_point_down(imports):
    assert faults(imports[0]) == []


def test_an_import_that_points_up_is_found():
    assert faults({"vlm_decisions.engine.vision": {"vlm_decisions.runtime.tick"}})


def test_no_module_imports_itself_by_way_of_others(imports):
    try:
        TopologicalSorter(imports[0]).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


@pytest.mark.parametrize("package", sorted(ROOMS_WITH))
def test_a_package_is_imported_only_where_it_belongs(package, imports):
    rooms = {room_of(module) for module, names in imports[1].items() if package in names}
    assert rooms <= ROOMS_WITH[package]


def test_the_robots_rooms_need_neither_ros_nor_mlx():
    """What the imports say holds when it is run: other modules could bring them in."""
    code = (f"import sys, {PACKAGE}\n"
            "assert 'numpy' not in sys.modules\n"
            "for name in ('rclpy', 'mlx', 'mlx_vlm', 'torch'): sys.modules[name] = None\n"
            f"import {PACKAGE}.runtime, {PACKAGE}.engine.prompt, {PACKAGE}.questions\n"
            f"import {PACKAGE}.sources.bags, {PACKAGE}.sources.video\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


GENERATED = ("action", "msg", "srv")


def classes(source: str) -> list[str]:
    """Return the names of the classes that a module defines, at any depth."""
    return [node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]


def test_a_class_name_means_one_thing():
    where = defaultdict(set)
    package = resources.package_dir()
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] in GENERATED:
            continue  # messages are named like what they carry
        for name in classes(path.read_text()):
            where[name].add(path)
    assert len(where) > 150
    several = {name: sorted(map(str, files)) for name, files in where.items() if len(files) > 1}
    assert several == {}


def test_a_class_inside_of_a_function_is_found():
    assert classes("def make():\n    class Inner:\n        pass\n") == ["Inner"]
