"""The CUDA toolkit as a repository: nvcc, the runtime's headers and its static library.

It is taken from CUDA_HOME, else from the nvcc on PATH, else from NVIDIA's wheels in the Python
environment, and stays where it is. nvcc finds its own headers; only those that host C++ code may
include are targets here.
"""

_OLDEST = (12, 8)

_BUILD = """\
package(default_visibility = ["//visibility:public"])

exports_files(["nvcc"])

cc_library(
    name = "headers",
    hdrs = glob(["include/*.h", "include/*.hpp", "include/crt/**"]),
    includes = ["include"],
)

cc_library(
    name = "cudart_static",
    srcs = ["libcudart_static.a"],
    linkopts = ["-ldl", "-lpthread", "-lrt"],
    deps = [":headers"],
)
"""

# The version in the comment makes a new nvcc at an old path a changed input.
_NVCC = """\
#!/bin/sh
# {version}
exec '{nvcc}' "$@"
"""

def _first_existing(ctx, paths):
    for path in paths:
        if ctx.path(path).exists:
            return path
    return None

def _root_of(ctx, nvcc):
    """The toolkit that `nvcc`, possibly a link to it or a script around it, belongs to."""
    result = ctx.execute([nvcc, "--dryrun", "-x", "cu", "-c", "/dev/null", "-o", "/dev/null"])
    for line in result.stderr.splitlines():
        if line.startswith("#$ TOP="):
            return line[len("#$ TOP="):]
    fail("%s --dryrun names no TOP:\n%s" % (nvcc, result.stderr))

def _find_root(ctx):
    home = ctx.os.environ.get("CUDA_HOME")
    if home:
        if not ctx.path(home + "/bin/nvcc").exists:
            fail("CUDA_HOME is '%s', and %s/bin/nvcc does not exist" % (home, home))
        return home
    on_path = ctx.which("nvcc")
    if on_path:
        return _root_of(ctx, on_path)
    python = json.decode(ctx.read(ctx.attr.python_environment))
    for folder in python["site_packages"]:
        wheels = folder + "/nvidia/cu13"
        if ctx.path(wheels + "/bin/nvcc").exists:
            return wheels
    fail("no CUDA compiler: set CUDA_HOME to a toolkit of %d.%d or newer, or put its nvcc on PATH" %
         _OLDEST + " (%s has none of NVIDIA's wheels either)" % python["python"])

def _check_version(nvcc, text):
    """Fails unless `text`, nvcc's answer to --version, names a release that can compile sm_90a."""
    before, found, after = text.partition(", release ")
    release = after.split(",")[0].split(".")
    if not found or not all([part.isdigit() for part in release]):
        fail("%s --version says no release:\n%s" % (nvcc, text))
    if (int(release[0]), int(release[1])) < _OLDEST:
        fail("%s is of CUDA %s; " % (nvcc, ".".join(release)) + "%d.%d is needed" % _OLDEST)

def _cuda_toolkit_impl(ctx):
    root = str(ctx.path(_find_root(ctx)))
    nvcc = root + "/bin/nvcc"
    result = ctx.execute([nvcc, "--version"])
    if result.return_code:
        fail("%s does not run:\n%s" % (nvcc, result.stderr))
    _check_version(nvcc, result.stdout)
    target = root + "/targets/x86_64-linux"
    include = _first_existing(ctx, [target + "/include", root + "/include"])
    cudart = _first_existing(ctx, [
        folder + "/libcudart_static.a"
        for folder in [target + "/lib", root + "/lib64", root + "/lib"]
    ])
    if not include or not cudart:
        fail("%s holds no headers or no libcudart_static.a" % root)
    ctx.symlink(include, "include")
    ctx.symlink(cudart, "libcudart_static.a")
    version = result.stdout.strip().splitlines()[-1]
    ctx.file("nvcc", _NVCC.format(nvcc = nvcc, version = version))
    ctx.file("BUILD", _BUILD, executable = False)

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    attrs = {
        "python_environment": attr.label(
            doc = "environment.json of the python_environment repository.",
            mandatory = True,
        ),
    },
    doc = "Finds a CUDA toolkit.",
    environ = ["CUDA_HOME", "PATH"],
    local = True,
)
