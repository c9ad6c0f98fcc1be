"""CUTLASS's headers as a repository, fetched when a target that needs them is first built."""

_BUILD = """\
cc_library(
    name = "cutlass",
    hdrs = glob(["include/**"]),
    # A device assertion is a call, and a call between wgmma instructions serialises them.
    defines = ["NDEBUG"],
    includes = ["include"],
    visibility = ["//visibility:public"],
    deps = ["@cuda//:headers"],
)
"""

_DOWNLOAD_SECONDS = 600

def _cutlass_headers_impl(ctx):
    python = json.decode(ctx.read(ctx.attr.python_environment))["python"]
    result = ctx.execute(
        [python, "-m", "pip", "download", "--require-hashes", "--no-deps", "--no-input"] +
        ["--disable-pip-version-check", "--dest", "wheel"] +
        ["--requirement", ctx.path(ctx.attr.lock)],
        timeout = _DOWNLOAD_SECONDS,
    )
    if result.return_code:
        fail("pip cannot fetch CUTLASS as %s has it:\n%s" % (ctx.attr.lock, result.stderr))
    ctx.symlink(ctx.path("wheel").readdir()[0], "wheel.zip")  # the name tells Bazel what it is
    ctx.extract("wheel.zip", stripPrefix = "cutlass_library/source")
    for unused in ["wheel.zip", "wheel", "examples", "tools"]:
        ctx.delete(unused)
    ctx.file("BUILD", _BUILD, executable = False)

cutlass_headers = repository_rule(
    implementation = _cutlass_headers_impl,
    attrs = {
        "lock": attr.label(
            doc = "pip's requirement of the package, with its hash.",
            mandatory = True,
        ),
        "python_environment": attr.label(
            doc = "environment.json of the python_environment repository, whose pip fetches it.",
            mandatory = True,
        ),
    },
    doc = "Fetches the headers by pip, from whichever index it is set to use.",
)
