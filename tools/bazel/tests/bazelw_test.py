"""bazelw on machines that have, or lack, a Bazel and a Python: scripts in one folder on PATH."""

import pathlib
import shutil
import subprocess
import sys
import textwrap

import pytest

BAZELW = pathlib.Path("bazelw").resolve()


class Machine:
    """A PATH with bash, env and a root's id, and whatever scripts a test puts there."""

    def __init__(self, folder: pathlib.Path):
        self.bin = folder / "bin"
        self.home = folder / "home"
        self.bin.mkdir()
        self.home.mkdir()
        for tool in ("bash", "env"):
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.script("id", "echo 0")

    def script(self, name: str, body: str, folder: pathlib.Path | None = None) -> None:
        path = (folder or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # it may be a link to a real tool
        path.write_text(f"#!{shutil.which('bash')}\n{textwrap.dedent(body)}\n")
        path.chmod(0o755)

    def bazel(self, version: str, name: str = "bazel") -> None:
        self.script(name, f"""\
            if [[ $1 == --version ]]; then echo "bazel {version}"; exit; fi
            echo "{name} python=$ASYNCT_PYTHON args=$*"
            """)

    def python(self, version: str, name: str, lacks: str = "", folder: pathlib.Path | None = None):
        """A Python that answers bazelw's question (-c PROGRAM VERSIONS MODULE ...) as `version`."""
        path = (folder or self.bin) / name
        self.script(name, f"""\
            [[ "|$3|" == *"|{version}|"* ]] || exit 1
            printf '%s\\n' {path} {version} "{lacks}"
            """, folder)

    def apt(self, installs: str = "") -> None:
        """An apt-get that notes what it is asked for; `install` then runs the given commands."""
        self.script("apt-get", f"""\
            echo "apt-get $*"
            if [[ $1 == install ]]; then {installs or ':'}; fi
            """)

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess:
        environ = {"PATH": str(self.bin), "HOME": str(self.home), **environ}
        return subprocess.run([self.bin / "bash", BAZELW, *arguments], env=environ, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.fixture
def machine(tmp_path) -> Machine:
    machine = Machine(tmp_path)
    machine.script("g++", "")
    machine.script("ldconfig", "echo 'libnuma.so.1 (libc6,x86-64) => /usr/lib/libnuma.so.1'")
    return machine


def test_everything_is_passed_on(machine):
    machine.bazel("6.5.0")
    machine.python("3.12", "python3.12")
    result = machine.run("test", "//...", "--config=gpu", "--", "a b")
    assert result.returncode == 0
    assert result.stdout == f"bazel python={machine.bin}/python3.12 " \
                            "args=test //... --config=gpu -- a b\n"


@pytest.mark.parametrize("version", ["4.2.3", "5.4.1", "no_version"])
def test_bazel_before_7_gets_no_flag_it_does_not_know(machine, version):
    machine.bazel(version)
    machine.python("3.11", "python3")
    assert "args=info\n" in machine.run("info").stdout


def test_bazel_7_is_kept_off_the_module_registry(machine):
    machine.bazel("7.4.0")
    machine.python("3.11", "python3")
    assert "/tools/bazel/no_bzlmod.bazelrc info\n" in machine.run("info").stdout


def test_bazel_8_is_explained_and_an_older_one_beside_it_used(machine):
    machine.bazel("8.1.0")
    machine.bazel("4.2.3", "bazel-4")
    machine.python("3.12", "python3.12")
    output = machine.run("info").stdout
    assert "bazel: it is Bazel 8" in output and "WORKSPACE" in output
    assert "bazel-4 python=" in output


def test_python_3_12_is_preferred_wherever_it_is(machine):
    machine.bazel("4.2.3")
    machine.python("3.11", "python3")
    machine.python("3.11", "python3.11")
    machine.script("python3.12", "echo 'pyenv: python3.12: command not found' >&2; exit 127")
    versions = machine.home / ".pyenv" / "versions" / "3.12.1" / "bin"
    assert f"python={machine.bin}/python3.11 " in machine.run("info").stdout
    machine.python("3.12", "python3", folder=versions)
    assert f"python={versions}/python3 " in machine.run("info").stdout
    machine.python("3.12", "python3")
    assert f"python={machine.bin}/python3 " in machine.run("info").stdout
    assert f"python={machine.bin}/python3.11 " in machine.run(
        "info", ASYNCT_PYTHON=f"{machine.bin}/python3.11").stdout


def test_the_host_environment_takes_the_python3_on_path(machine):
    machine.bazel("4.2.3")
    machine.python("3.11", "python3")
    machine.python("3.12", "python3.12")
    assert f"python={machine.bin}/python3 " in machine.run("info", ASYNCT_PYTHON_ENV="host").stdout


def test_a_bad_asynct_python_is_named(machine):
    machine.bazel("4.2.3")
    machine.python("3.12", "python3.12")
    machine.python("3.13", "python3.13")
    for bad in ("/nowhere/python", f"{machine.bin}/python3.13"):
        result = machine.run("info", ASYNCT_PYTHON=bad)
        assert result.returncode == 1
        assert f"ASYNCT_PYTHON is '{bad}'" in result.stdout


def test_apt_brings_only_what_is_missing(machine):
    machine.python("3.12", "python3.12")
    bazel = machine.bin / "bazel"
    machine.apt(f"printf '#!%s\\necho bazel 4.2.3 $*' {machine.bin}/bash >{bazel}; "
                f"{shutil.which('chmod')} +x {bazel}")
    result = machine.run("info")
    assert result.returncode == 0
    assert "apt-get install --no-install-recommends bazel-bootstrap -q -y\n" in result.stdout
    assert result.stdout.endswith("bazel 4.2.3 info\n")


def test_a_bare_machine_asks_for_everything(machine):
    (machine.bin / "g++").unlink()
    machine.script("ldconfig", "")
    machine.apt()
    result = machine.run("info")
    assert result.returncode == 1
    for package in ("bazel-bootstrap", "g++", "libnuma1", "python3", "python3-venv", "python3-dev"):
        assert f" {package} " in result.stdout
    assert "found no Bazel 4 to 7" in result.stdout


def test_libnuma_is_for_vllm_on_the_cpu_alone(machine):
    machine.bazel("4.2.3")
    machine.python("3.12", "python3")
    machine.script("ldconfig", "echo 'libc.so.6 (libc6,x86-64) => /usr/lib/libc.so.6'")
    machine.apt()
    assert "install --no-install-recommends libnuma1 -q" in machine.run("info").stdout
    assert "apt-get" not in machine.run("info", ASYNCT_PYTHON_ENV="cuda").stdout


def test_without_root_or_apt_it_says_what_to_do(machine):
    machine.bazel("8.0.0")
    machine.python("3.11", "python3")
    result = machine.run("info")
    assert result.returncode == 1
    assert "Debian or Ubuntu: apt-get install" in result.stdout
    machine.apt()
    machine.script("id", "echo 1000")
    result = machine.run("info")
    assert result.returncode == 1
    assert "let root run: apt-get install --no-install-recommends bazel-bootstrap" in result.stdout


def test_a_python_without_headers_is_not_taken_silently(machine):
    machine.bazel("4.2.3")
    machine.python("3.12", "python3.12", lacks="ensurepip, Python.h")
    result = machine.run("info")
    assert result.returncode == 1
    assert "python3.12: it lacks ensurepip, Python.h" in result.stdout


@pytest.mark.parametrize("kind, modules", [("cpu", "venv ensurepip"), ("host", "")])
def test_only_an_environment_to_be_installed_needs_venv(machine, kind, modules):
    machine.bazel("4.2.3")
    machine.script("python3", f"""\
        shift 3
        [[ "$*" == "{modules}" ]] && printf '%s\\n' /python 3.12 ""
        """)
    assert "python=/python " in machine.run("info", ASYNCT_PYTHON_ENV=kind).stdout


def test_the_question_put_to_pythons_is_understood_by_this_one(machine):
    """The other tests answer for Python: here the real one does."""
    machine.bazel("4.2.3")
    machine.script("python3", f'exec {sys.executable} "$@"')
    output = machine.run("info", ASYNCT_PYTHON_ENV="host").stdout
    assert output == f"bazel python={sys.executable} args=info\n"
