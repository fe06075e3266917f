"""Build the package for pip by running its CMake build.

CMake generates the message and service types and decides what is installed where. This file runs
it for the prefix of the present environment, but into a staging folder, and hands the result to
setuptools: the Python package as the wheel's modules, everything else (libraries, ament index
entries, share/, lib/vlm_decisions/) as data files below the environment's prefix.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Command, Distribution, setup
from setuptools.command.build import build

PACKAGE = "vlm_decisions"
ROOT = Path(__file__).resolve().parent


def ros_prefixes() -> list[str]:
    """Return the prefixes to find ROS packages in: the sourced ones, then this environment."""
    named = os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
    named += os.environ.get("CMAKE_PREFIX_PATH", "").split(os.pathsep)
    return [prefix for prefix in dict.fromkeys([*named, sys.prefix]) if prefix]


def python_folders(prefixes: list[str]) -> list[str]:
    """Return the folders of Python modules below the ROS prefixes (rosidl's generators)."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    layouts = [f"lib/{version}/site-packages", f"local/lib/{version}/dist-packages"]
    folders = [Path(prefix, layout) for prefix in prefixes for layout in layouts]
    return [str(folder) for folder in folders if folder.is_dir()]


def cmake_environment(prefixes: list[str]) -> dict[str, str]:
    """Return the environment for CMake.

    pip builds in isolation by putting its own folder in PYTHONPATH, which hides the modules that
    rosidl's generators need from the interpreters that CMake starts; those get the ROS ones.
    """
    environment = dict(os.environ)
    environment["AMENT_PREFIX_PATH"] = os.pathsep.join(prefixes)
    environment["CMAKE_PREFIX_PATH"] = os.pathsep.join(prefixes)
    environment["PYTHONPATH"] = os.pathsep.join(python_folders(prefixes))
    environment.pop("PYTHONNOUSERSITE", None)
    return environment


class BuildCMake(Command):
    """Configure, build and install with CMake, then collect what was installed."""

    description = "run the CMake build"
    user_options = []

    def initialize_options(self) -> None:
        """Set the options that the build command fills in."""
        self.build_lib = None
        self.build_temp = None

    def finalize_options(self) -> None:
        """Take the folders from the build command."""
        self.set_undefined_options(
            "build", ("build_platlib", "build_lib"), ("build_temp", "build_temp")
        )

    def run(self) -> None:
        """Run CMake and fill the build folder and the list of data files."""
        prefixes = ros_prefixes()
        # The generated code is tied to the ROS installation: one build folder for each.
        name = "cmake-" + "-".join(Path(prefix).name or "root" for prefix in prefixes)
        work = ROOT / self.build_temp / name
        folder = work / PACKAGE  # colcon's layout: it can go on from here
        shutil.rmtree(work / "stage", ignore_errors=True)
        environment = cmake_environment(prefixes)
        environment["DESTDIR"] = str(work / "stage")
        configure = [
            "cmake", "-S", str(ROOT), "-B", str(folder),
            f"-DCMAKE_INSTALL_PREFIX={sys.prefix}",
            f"-DPython3_EXECUTABLE={sys.executable}",
            "-DCMAKE_BUILD_TYPE=Release",
            "-DBUILD_TESTING=OFF",
        ]  # fmt: skip
        if shutil.which("ninja"):
            configure += ["-G", "Ninja"]
        jobs = str(os.cpu_count() or 1)
        for command in (
            configure,
            ["cmake", "--build", str(folder), "-j", jobs],
            ["cmake", "--install", str(folder)],
        ):
            code = subprocess.run(command, check=False, env=environment).returncode
            if code:
                raise SystemExit(
                    f"CMake failed ({code}): {' '.join(command)}\n"
                    f"ROS 2 was looked for in {', '.join(prefixes)}; is it installed and sourced?"
                )
        self.collect(work / "stage" / Path(sys.prefix).relative_to("/"))

    def collect(self, stage: Path) -> None:
        """Take the installed tree apart into the Python package and the data files."""
        modules = [path.parent for path in stage.rglob(f"{PACKAGE}/__init__.py")]
        if len(modules) != 1:
            raise RuntimeError(f"CMake installed {PACKAGE} {len(modules)} times below {stage}")
        package = modules[0]
        target = Path(self.build_lib) / PACKAGE
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(package, target)
        data: dict[str, list[str]] = {}
        for path in sorted(stage.rglob("*")):
            # The folder that holds the package also holds CMake's own egg-info; pip makes the
            # scripts of bin itself.
            if path.is_file() and not {package.parent, stage / "bin"} & set(path.parents):
                folder = path.parent.relative_to(stage).as_posix()
                data.setdefault(folder, []).append(os.path.relpath(path, ROOT))
        self.distribution.data_files = sorted(data.items())


class Build(build):
    """The build command with CMake's part in front."""

    sub_commands = [("build_cmake", None), *build.sub_commands]


class BinaryDistribution(Distribution):
    """A distribution whose wheels belong to one platform and Python version."""

    def has_ext_modules(self) -> bool:
        """Say that there is compiled code, though setuptools compiles none of it."""
        return True


setup(cmdclass={"build": Build, "build_cmake": BuildCMake}, distclass=BinaryDistribution)
