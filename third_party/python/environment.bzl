"""The Python environment as a repository: toolchain, headers, and where the packages lie.

Its thousands of files stay where they are, out of every target's inputs and runfiles: the
interpreter's path names the lock's hash, so a change of the lock still rebuilds and retests.
"""

_BUILD = """\
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

package(default_visibility = ["//visibility:public"])

exports_files(["environment.json"])

py_runtime(
    name = "python3",
    interpreter_path = "{python}",
    python_version = "PY3",
    stub_shebang = "#!{python}",
)

py_runtime_pair(
    name = "runtimes",
    py3_runtime = ":python3",
)

toolchain(
    name = "toolchain",
    toolchain = ":runtimes",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)

cc_library(
    name = "python_headers",
    hdrs = glob(["python_headers/**/*.h"]),
    includes = ["python_headers"],
)

cc_library(
    name = "pybind11",
    hdrs = glob(["pybind11_headers/pybind11/**/*.h"]),
    includes = ["pybind11_headers"],
    deps = [":python_headers"],
)
"""

_INSTALL_SECONDS = 7200

def _python_environment_impl(ctx):
    kind = ctx.os.environ.get("ASYNCT_PYTHON_ENV") or "cpu"
    if kind not in ("cpu", "cuda", "host"):
        fail("ASYNCT_PYTHON_ENV is '%s': it must be cpu (the default), cuda or host" % kind)
    python = ctx.os.environ.get("ASYNCT_PYTHON") or ctx.which("python3")
    if not python:
        fail("no Python: set ASYNCT_PYTHON, or start the build with ./bazelw, which looks for it")
    locks = {name: label for label, name in ctx.attr.locks.items()}
    lock = ctx.path(locks["cuda" if kind == "host" else kind])
    program = ctx.path(ctx.attr._program)
    ctx.path(ctx.attr._installation)  # imported by the program
    result = ctx.execute(
        [python, "-B", program, "--kind", kind, "--lock", lock, "--output", "environment.json"],
        quiet = False,
        timeout = _INSTALL_SECONDS,
    )
    if result.return_code:
        fail("no Python environment: the reason is above")
    environment = json.decode(ctx.read("environment.json"))
    ctx.symlink(environment["python_headers"], "python_headers")
    ctx.symlink(environment["pybind11_headers"], "pybind11_headers")
    ctx.file("BUILD", _BUILD.format(python = environment["python"]), executable = False)

python_environment = repository_rule(
    implementation = _python_environment_impl,
    attrs = {
        "locks": attr.label_keyed_string_dict(
            doc = "Lock file -> the ASYNCT_PYTHON_ENV that it serves, cpu or cuda.",
            mandatory = True,
        ),
        "_installation": attr.label(default = "//third_party/python:installation.py"),
        "_program": attr.label(default = "//third_party/python:environment.py"),
    },
    doc = "Makes the environment with environment.py, or finds it in the user's cache.",
    environ = ["ASYNCT_PYTHON", "ASYNCT_PYTHON_ENV", "HOME", "XDG_CACHE_HOME"],
    # Asked again at every start of the Bazel server: the cache may have been deleted.
    local = True,
)
