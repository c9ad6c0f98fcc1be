"""Writes a wheel: a zip of packages and their NAME-VERSION.dist-info folder.

usage: writer.py --output FOLDER PATH_IN_WHEEL=FILE ...

One of the files is the METADATA of the dist-info folder; RECORD and WHEEL are made here. The same
files give the same bytes, whatever their times, modes and order.
"""

import argparse
import base64
import email
import hashlib
import pathlib
import sys
import sysconfig
import zipfile
from collections.abc import Mapping

from packaging import tags

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can hold
_MODE = 0o100644 << 16


def interpreter_tag() -> tags.Tag:
    """The tag of what is compiled here, for this interpreter and this machine's own libraries."""
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return next(tags.cpython_tags(platforms=[platform]))


def find_dist_info(paths: Mapping[str, pathlib.Path]) -> str:
    """The dist-info folder among the paths.

    Raises:
        ValueError: there is not one METADATA, or it does not name the folder's name and version.
    """
    found = [path for path in paths if path.endswith(".dist-info/METADATA")]
    if len(found) != 1:
        raise ValueError(f"a wheel has one NAME-VERSION.dist-info/METADATA, not {found}")
    folder = found[0].removesuffix("/METADATA")
    metadata = email.message_from_string(paths[found[0]].read_text())
    named = f"{metadata['Name'].replace('-', '_')}-{metadata['Version']}.dist-info"
    if folder != named:
        raise ValueError(f"{found[0]} is that of {named}")
    return folder


def write_wheel(folder: pathlib.Path, paths: Mapping[str, pathlib.Path]) -> pathlib.Path:
    """Writes a wheel into `folder` and returns its path.

    Args:
        folder: an existing folder.
        paths: path in the wheel -> file.

    Raises:
        ValueError: as `find_dist_info`.
    """
    dist_info = find_dist_info(paths)
    tag = interpreter_tag()
    names = sorted(paths, key=lambda name: (name.startswith(dist_info), name))
    contents = {name: paths[name].read_bytes() for name in names}
    contents[f"{dist_info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: asynct\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
    record = f"{dist_info}/RECORD"
    lines = [_record_line(name, content) for name, content in contents.items()]
    contents[record] = "".join([*lines, f"{record},,\n"]).encode()
    wheel = folder / f"{dist_info.removesuffix('.dist-info')}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = _MODE
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return wheel


def _record_line(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("files", nargs="+", metavar="PATH_IN_WHEEL=FILE")
    arguments = parser.parse_args(argv)
    pairs = (file.split("=", 1) for file in arguments.files)
    write_wheel(arguments.output, {name: pathlib.Path(path) for name, path in pairs})


if __name__ == "__main__":
    main(sys.argv[1:])
