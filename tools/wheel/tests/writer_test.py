"""A wheel of a few made-up files: its bytes, its name, its RECORD, and what is refused."""

import base64
import csv
import hashlib
import os
import zipfile

import pytest
import writer
from packaging import utils

METADATA = "Metadata-Version: 2.1\nName: some-thing\nVersion: 1.2.3\n"
FILES = {
    "some_thing/__init__.py": b"",
    "some_thing/_C.so": bytes(range(256)) * 100,
    "some_thing-1.2.3.dist-info/METADATA": METADATA.encode(),
    "some_thing-1.2.3.dist-info/entry_points.txt": b"[vllm.general_plugins]\n",
}


@pytest.fixture
def paths(tmp_path):
    """Path in the wheel -> file; the files have other names."""
    paths = {}
    for index, (name, content) in enumerate(FILES.items()):
        paths[name] = tmp_path / f"file{index}"
        paths[name].write_bytes(content)
    return paths


def test_the_name_says_what_it_is_and_for_which_interpreter(paths, tmp_path):
    wheel = writer.write_wheel(tmp_path, paths)
    name, version, _, tags = utils.parse_wheel_filename(wheel.name)
    assert (name, str(version)) == ("some-thing", "1.2.3")
    assert tags == {writer.interpreter_tag()}
    with zipfile.ZipFile(wheel) as archive:
        written = archive.read("some_thing-1.2.3.dist-info/WHEEL").decode()
    assert f"Tag: {writer.interpreter_tag()}\n" in written


def test_the_record_has_every_file_and_its_hash(paths, tmp_path):
    with zipfile.ZipFile(writer.write_wheel(tmp_path, paths)) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    assert FILES.items() <= contents.items()
    lines = contents["some_thing-1.2.3.dist-info/RECORD"].decode().splitlines()
    record = {name: (digest, size) for name, digest, size in csv.reader(lines)}
    assert record.keys() == contents.keys()
    assert record.pop("some_thing-1.2.3.dist-info/RECORD") == ("", "")
    for name, (digest, size) in record.items():
        sha256 = base64.urlsafe_b64encode(hashlib.sha256(contents[name]).digest())
        assert digest == f"sha256={sha256.decode().rstrip('=')}"
        assert int(size) == len(contents[name])


def test_the_same_files_give_the_same_bytes(paths, tmp_path):
    first = writer.write_wheel(tmp_path, paths).read_bytes()
    for path in paths.values():
        os.utime(path, (0, 1e9))
        path.chmod(0o700)
    reordered = dict(reversed(paths.items()))
    assert writer.write_wheel(tmp_path, reordered).read_bytes() == first


def test_no_metadata_or_two_are_refused(paths, tmp_path):
    paths["other-1.0.dist-info/METADATA"] = paths["some_thing-1.2.3.dist-info/METADATA"]
    with pytest.raises(ValueError, match="some_thing-1.2.3.*other-1.0"):
        writer.write_wheel(tmp_path, paths)
    with pytest.raises(ValueError, match="one NAME-VERSION.dist-info/METADATA"):
        writer.write_wheel(tmp_path, {"some_thing/_C.so": paths["some_thing/_C.so"]})


@pytest.mark.parametrize("change", [("1.2.3", "1.2.4"), ("some-thing", "something")])
def test_metadata_of_another_name_or_version_is_refused(paths, tmp_path, change):
    paths["some_thing-1.2.3.dist-info/METADATA"].write_text(METADATA.replace(*change))
    with pytest.raises(ValueError, match="some_thing-1.2.3.*is that of some"):
        writer.write_wheel(tmp_path, paths)
