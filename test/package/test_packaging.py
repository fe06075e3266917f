"""Both doors, pip and colcon, from the source tree to a program that publishes a Decision.

Each is built once into a throw-away place and then used from outside the source tree, the way a
robot with a ROS of its own uses it: ROS on the library path, the package's setup file sourced.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="needs ROS 2")
pytestmark = pytest.mark.timeout(1200)  # the first test waits for a build

ROOT = Path(__file__).resolve().parents[2]
ROS_PREFIX = Path(sys.prefix)
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
MESSAGES, SERVICES, ACTIONS = (
    sorted(path.stem for path in ROOT.glob(f"{kind}/*.{kind}"))
    for kind in ("msg", "srv", "action"))
BUILD_S = 900.0  # longest time for one build on a busy machine
PROGRAMS = [
    "decision_node",
    "replay_camera",
    "sim_camera",
    "viewer",
    "vlm-decisions",
]

ROUND_TRIP = """
import rclpy
from vlm_decisions.msg import Decision
from vlm_decisions.srv import AddQuestion

rclpy.init()
node = rclpy.create_node("packaging")
got = []
node.create_subscription(Decision, "decisions", got.append, 10)
publisher = node.create_publisher(Decision, "decisions", 10)
node.create_service(AddQuestion, "add", lambda request, response: response)
for _ in range(200):
    publisher.publish(Decision(question_id="door", answer=Decision.YES, p=0.75))
    rclpy.spin_once(node, timeout_sec=0.05)
    if got:
        break
print("received", got[0].question_id, got[0].answer, got[0].p)
node.destroy_node()
rclpy.shutdown()
with open("/proc/self/maps") as maps:
    loaded = {line.split()[-1] for line in maps if "libvlm_decisions__" in line}
print("loaded", *sorted(loaded))
"""


@dataclass(frozen=True)
class Door:
    """An installation of the package: where it is and how its user sets up a shell."""

    prefix: Path
    setup: Path
    python: Path
    programs: Path

    @property
    def share(self) -> Path:
        """Return the package's share folder."""
        return self.prefix / "share" / "vlm_decisions"

    def run(self, *command: str | Path, cwd: Path) -> str:
        """Run a command in a shell with the setup file sourced; return what it printed."""
        script = f'source "{self.setup}" && exec "$@"'
        return run(["bash", "-c", script, "bash", *command], cwd, ros_environment(), timeout_s=60)


def ros_environment() -> dict[str, str]:
    """Return an environment with ROS and without this process's own vlm_decisions on a path.

    The ROS wheels' libraries are put on the library path as a ROS setup file does. The wheels'
    own start-up hook, which a robot does not have, would do that too but in no certain order.
    """
    wheels = sysconfig.get_path("purelib")
    libraries = [ROS_PREFIX / "lib", *Path(wheels).glob("ros_*.libs")]
    keep = {"HOME", "LANG", "TMPDIR", "CMAKE_BUILD_PARALLEL_LEVEL"}
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in keep or name.startswith(("PIP_", "SSL_", "http", "HTTP"))
    }
    return environment | {
        "PATH": os.pathsep.join([str(ROS_PREFIX / "bin"), "/usr/local/bin", "/usr/bin", "/bin"]),
        "LD_LIBRARY_PATH": os.pathsep.join(str(folder) for folder in libraries),
        "_ROS_WHEELS_BOOTSTRAP_COMPLETE": "1",
        "AMENT_PREFIX_PATH": str(ROS_PREFIX),
        "CMAKE_PREFIX_PATH": str(ROS_PREFIX),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "ROS_DOMAIN_ID": os.environ["ROS_DOMAIN_ID"],
    }


def run(command: list[str | Path], cwd: Path, environment: dict[str, str], timeout_s: float) -> str:
    """Run a command and return its output; on failure show all of it."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="session")
def source(tmp_path_factory) -> Path:
    """Return a copy of the source tree, as a clone without any build would be."""
    copy = tmp_path_factory.mktemp("source") / "vlm_decisions"
    ignore = shutil.ignore_patterns(".git", ".venv*", "build", "install", "log", "__pycache__")
    shutil.copytree(ROOT, copy, ignore=ignore)
    return copy


@pytest.fixture(scope="session")
def pip_door(source, tmp_path_factory) -> Door:
    """Install with pip into an environment that sees ROS, as a robot's virtual environment.

    The wheel in VLM_DECISIONS_WHEELS, where that names a folder; else pip builds it from source.
    """
    wheels = os.environ.get("VLM_DECISIONS_WHEELS")
    what = next(Path(wheels).glob("*.whl")) if wheels else source
    prefix = tmp_path_factory.mktemp("pip") / "env"
    venv.create(prefix, with_pip=False, symlinks=True)
    site_packages = prefix / "lib" / VERSION / "site-packages"
    (site_packages / "ros.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = prefix / "bin" / "python"
    install = [
        sys.executable, "-m", "pip", "--python", python, "install",
        "--no-deps", "--ignore-installed", what,
    ]  # fmt: skip
    run(install, prefix, ros_environment(), BUILD_S)
    share = prefix / "share" / "vlm_decisions"
    return Door(prefix, share / "local_setup.bash", python, prefix / "bin")


@pytest.fixture(scope="session")
def colcon_door(request, tmp_path_factory) -> Door:
    """Build with colcon in a workspace.

    From the build that VLM_DECISIONS_BUILD names, where it does; else from nothing.
    """
    workspace = tmp_path_factory.mktemp("colcon")
    base = os.environ.get("VLM_DECISIONS_BUILD")
    colcon = [
        sys.executable, "-m", "colcon", "build",
        "--base-paths", ROOT if base else request.getfixturevalue("source"),
        # The build remembers where an earlier run installed to.
        "--build-base", base or workspace / "build", "--cmake-force-configure",
        "--cmake-args", "-DBUILD_TESTING=OFF",
    ]  # fmt: skip
    run(colcon, workspace, ros_environment(), BUILD_S)
    prefix = workspace / "install" / "vlm_decisions"
    programs = prefix / "lib" / "vlm_decisions"
    return Door(prefix, workspace / "install" / "setup.bash", Path(sys.executable), programs)


@pytest.fixture(params=[
    pytest.param(name, marks=[pytest.mark.slow, pytest.mark.xdist_group(f"{name} door")])
    for name in ("pip", "colcon")])
def door(request) -> Door:
    """Return each of the two installations."""
    return request.getfixturevalue(f"{request.param}_door")


def test_interfaces_are_there_for_ros2_interface_show(door, source):
    """What `ros2 interface show` reads: the index entry and the files that it lists."""
    index = door.prefix / "share" / "ament_index" / "resource_index"
    assert (index / "packages" / "vlm_decisions").is_file()
    listed = (index / "rosidl_interfaces" / "vlm_decisions").read_text().split()
    for kind, names in (("msg", MESSAGES), ("srv", SERVICES), ("action", ACTIONS)):
        for name in names:
            assert f"{kind}/{name}.{kind}" in listed
            shown = (door.share / kind / f"{name}.{kind}").read_text()
            assert shown == (source / kind / f"{name}.{kind}").read_text()
    assert {line for line in listed if line.endswith((".msg", ".srv", ".action"))} == {
        *(f"msg/{name}.msg" for name in MESSAGES),
        *(f"srv/{name}.srv" for name in SERVICES),
        *(f"action/{name}.action" for name in ACTIONS),
    }


def test_share_folders_are_installed(door, source):
    """All files of config/, heads/ and launch/, which nodes and launch files look up."""
    for folder in ("config", "heads", "launch"):
        files = [p for p in (source / folder).rglob("*") if p.is_file() and p.suffix != ".pyc"]
        assert files, f"{folder}/ is empty"
        for path in files:
            assert (door.share / path.relative_to(source)).read_bytes() == path.read_bytes()


def test_the_viewers_page_is_installed(door, source):
    """The page, its styles and modules lie beside the module that serves them."""
    static = Path("vlm_decisions", "viewer", "static")
    installed = door.prefix / "lib" / VERSION / "site-packages" / static
    for path in (source / static).iterdir():
        assert (installed / path.name).read_bytes() == path.read_bytes()


def test_messages_and_services_work_over_dds(door, tmp_path):
    """The generated types, their libraries and our modules are found, and a message arrives."""
    where = door.run(
        door.python, "-c",
        "import vlm_decisions, vlm_decisions.files.resources as r; "
        "print(*vlm_decisions.__path__); print(r.share_dir()); print(r.package_dir())",
        cwd=tmp_path,
    ).splitlines()  # fmt: skip
    package = door.prefix / "lib" / VERSION / "site-packages" / "vlm_decisions"
    assert Path(where[0].split()[0]) == package
    assert Path(where[1]) == door.share.resolve()
    assert Path(where[2]) == package.resolve()
    said = door.run(door.python, "-c", ROUND_TRIP, cwd=tmp_path).splitlines()
    assert "received door yes 0.75" in said
    # This environment has the package too: none of its libraries may have helped.
    loaded = next(line for line in said if line.startswith("loaded ")).split()[1:]
    assert len(loaded) >= 3
    assert {Path(library).parent for library in loaded} == {(door.prefix / "lib").resolve()}


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_start(door, program, tmp_path):
    """The console scripts, and what `ros2 run` starts, print their help."""
    for folder in {door.programs, door.prefix / "lib" / "vlm_decisions"}:
        assert "usage:" in door.run(folder / program, "--help", cwd=tmp_path).lower()


def test_programs_run_with_the_python_beside_them(door, tmp_path):
    """Wherever the package was built; without one beside them, with the one of the build."""
    package = tmp_path / "vlm_decisions"
    package.mkdir()
    (package / "__init__.py").write_text("import sys\nprint(sys.prefix)\nraise SystemExit")
    program = door.prefix / "lib" / "vlm_decisions" / "viewer"
    prefix = door.run("env", f"PYTHONPATH={tmp_path}", program, cwd=tmp_path).strip()
    assert Path(prefix) == door.python.parent.parent


def test_the_command_is_on_the_path(door, tmp_path):
    """After the setup file is sourced, as README and docs call it."""
    assert "usage: vlm-decisions" in door.run("vlm-decisions", "--help", cwd=tmp_path)
    found = door.run("bash", "-c", "command -v vlm-decisions", cwd=tmp_path).strip()
    assert Path(found) == door.prefix / "bin" / "vlm-decisions"


def test_ros_knows_the_package(door, tmp_path):
    """The ament index finds the prefix once the setup file is sourced."""
    code = "from ament_index_python import get_package_prefix as p; print(p('vlm_decisions'))"
    assert Path(door.run(door.python, "-c", code, cwd=tmp_path).strip()) == door.prefix


def fields_of(text: str) -> list[tuple[str, bool]]:
    """Return each field or constant of an interface file and whether a comment explains it.

    A comment explains the lines that follow it up to the next blank line, or its own line.
    """
    found = []
    explained = False
    for line in text.splitlines():
        if not line.strip() or line.strip() == "---":
            explained = False
        elif line.startswith("#"):
            explained = True
        else:
            found.append((line, explained or re.search(r"\s#\s*\w", line) is not None))
    return found


@pytest.mark.parametrize("path", [*ROOT.glob("msg/*.msg"), *ROOT.glob("srv/*.srv"),
                                  *ROOT.glob("action/*.action")], ids=str)
def test_every_field_is_commented(path):
    """A reader of `ros2 interface show` learns unit and meaning of every field."""
    unexplained = [line for line, explained in fields_of(path.read_text()) if not explained]
    assert not unexplained


def test_the_comment_check_can_fail():
    """A field without a comment is seen as such."""
    assert fields_of("# a\nint8 a\n\nint8 b\nint8 c  # why\n") == [
        ("int8 a", True),
        ("int8 b", False),
        ("int8 c  # why", True),
    ]
