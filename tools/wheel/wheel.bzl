"""python_wheel: py_library targets, with all that they depend on, as one wheel."""

def _path_in_wheel(file, roots):
    """Where `file` is imported from: its path below the innermost of the `imports` folders."""
    inside = [root for root in roots if file.short_path.startswith(root)]
    if not inside:
        fail("%s is in none of the deps' `imports`" % file.short_path)
    return file.short_path[max([len(root) for root in inside]):]

def _python_wheel_impl(ctx):
    prefix = ctx.workspace_name + "/"
    imports = depset(transitive = [dep[PyInfo].imports for dep in ctx.attr.deps]).to_list()
    roots = [root[len(prefix):] + "/" for root in imports]
    files = depset(transitive = [dep[DefaultInfo].default_runfiles.files for dep in ctx.attr.deps])

    # A folder, for the interpreter's tag is in the wheel's name, and is not known here.
    folder = ctx.actions.declare_directory(ctx.label.name)
    args = ctx.actions.args()
    args.add("--output", folder.path)
    for file in files.to_list():
        args.add("%s=%s" % (_path_in_wheel(file, roots), file.path))
    ctx.actions.run(
        executable = ctx.executable._writer,
        arguments = [args],
        inputs = files,
        outputs = [folder],
        mnemonic = "PythonWheel",
        progress_message = "Writing a wheel to %s" % folder.short_path,
    )
    return [DefaultInfo(files = depset([folder]), runfiles = ctx.runfiles([folder]))]

python_wheel = rule(
    implementation = _python_wheel_impl,
    attrs = {
        "deps": attr.label_list(
            doc = "py_library targets. The data of one is NAME-VERSION.dist-info/METADATA.",
            mandatory = True,
            providers = [PyInfo],
        ),
        "_writer": attr.label(default = "//tools/wheel:writer", cfg = "exec", executable = True),
    },
    doc = "A folder that holds the wheel alone. Name and version are those of the dist-info folder.",
)
