"""The wheel, installed by pip where nothing else of AsyncT is: vLLM then knows it."""

import ast
import json
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from wheel_environment import WheelEnvironment

TINY = Path("model/tiny/checkpoint").resolve()
PACKAGES = ("asynct_kernels", "asynct_model", "asynct_vllm")

# As vLLM's processes start: nothing of ours is imported by hand.
PLUGIN_PROGRAM = f"""
import importlib.util, json, sys
from vllm.plugins import load_general_plugins
assert not any(name.startswith("asynct") for name in sys.modules)
load_general_plugins()
from transformers import AutoConfig
from vllm import ModelRegistry
from vllm.v1.attention.backends.registry import AttentionBackendEnum
import asynct_kernels._C
print(json.dumps({{
    "config": type(AutoConfig.from_pretrained({str(TINY)!r})).__name__,
    "architecture": "AsyncTForCausalLM" in ModelRegistry.get_supported_archs(),
    "backend": AttentionBackendEnum.CUSTOM.get_path(),
    "files": [importlib.util.find_spec(name).origin for name in {PACKAGES!r}],
}}))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> WheelEnvironment:
    environment = WheelEnvironment(tmp_path_factory.mktemp("environment"))
    environment.run("-c", f"import importlib.util as u; "
                    f"assert not any(map(u.find_spec, {PACKAGES!r}))")
    environment.install()
    return environment


def test_the_entry_point_makes_vllm_know_asynct(environment):
    found = json.loads(environment.run("-c", PLUGIN_PROGRAM).splitlines()[-1])
    assert found["config"] == "AsyncTConfig"
    assert found["architecture"]
    assert found["backend"] == "asynct_vllm.backend.AsyncTBackend"
    assert all(Path(file).is_relative_to(environment.site_packages) for file in found["files"])


def test_every_package_that_is_imported_is_required(environment):
    (metadata,) = environment.site_packages.glob("asynct_vllm-*.dist-info/METADATA")
    required = {
        Requirement(line.removeprefix("Requires-Dist: ")).name
        for line in metadata.read_text().splitlines()
        if line.startswith("Requires-Dist: ")
    }
    imported = set()
    for package in PACKAGES:
        for file in (environment.site_packages / package).rglob("*.py"):
            imported |= _imported(ast.parse(file.read_text()))
    assert imported - set(sys.stdlib_module_names) - set(PACKAGES) == required


def _imported(module: ast.Module) -> set[str]:
    """The top-level names of all that it imports."""
    names = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def test_pip_removes_all_that_it_installed(environment):
    environment.run("-m", "pip", "uninstall", "--yes", "asynct-vllm")
    assert not list(environment.site_packages.glob("asynct*"))
