"""cuda_library: CUDA sources compiled by nvcc for Hopper, as a dependency of C++ targets.

Every .cu file is one action. The ptxas report is kept (output group `ptxas`), and a register
spill, or wgmma instructions that ptxas had to serialise, fail the build: see nvcc_wrapper.py.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

_HOPPER = "arch=compute_90a,code=sm_90a"
_PORTABLE = "arch=compute_80,code=compute_80"  # PTX, compiled by the driver of any later card

_FLAGS = [
    "-std=c++20",
    "-O3",
    "--expt-relaxed-constexpr",
    "-Xptxas=-v",
    "-Xcompiler=-fPIC,-fvisibility=hidden",
]

def _compile(ctx, source, headers, context):
    """Registers the nvcc action of one source; returns its object and its ptxas report."""
    stem = "_objs/%s/%s" % (ctx.label.name, source.basename[:-len(".cu")])
    output = ctx.actions.declare_file(stem + ".o")
    report = ctx.actions.declare_file(stem + ".ptxas.txt")
    args = ctx.actions.args()
    args.add("--report", report)
    args.add("--")
    args.add(ctx.executable._nvcc)
    args.add_all(_FLAGS)
    args.add("-gencode", _HOPPER)
    if ctx.attr.portable:
        args.add("-gencode", _PORTABLE)
    args.add_all(context.defines, before_each = "-D")
    args.add_all(context.quote_includes, before_each = "-I")
    args.add_all(context.includes, before_each = "-I")
    args.add_all(context.system_includes, before_each = "-isystem")
    if ctx.var.get("broken") == source.basename[:-len(".cu")]:
        args.add("-DASYNCT_BROKEN")  # --define=broken=NAME: kernels/include/asynct/broken.h
    args.add("-c", source)
    args.add("-o", output)
    ctx.actions.run(
        executable = ctx.executable._wrapper,
        arguments = [args],
        inputs = depset([source], transitive = [headers]),
        tools = [ctx.executable._nvcc],
        outputs = [output, report],
        mnemonic = "CudaCompile",
        progress_message = "Compiling %s (nvcc)" % source.short_path,
        use_default_shell_env = True,
    )
    return output, report

def _cuda_library_impl(ctx):
    cc_toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc_toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    own = cc_common.create_compilation_context(headers = depset(ctx.files.hdrs))
    infos = [dep[CcInfo] for dep in ctx.attr.deps]
    compilation = cc_common.merge_cc_infos(
        direct_cc_infos = [CcInfo(compilation_context = own)],
        cc_infos = infos,
    ).compilation_context
    objects = []
    reports = []
    for source in ctx.files.srcs:
        output, report = _compile(ctx, source, compilation.headers, compilation)
        objects.append(output)
        reports.append(report)
    linking, linked = cc_common.create_linking_context_from_compilation_outputs(
        alwayslink = True,  # a library of entry points alone is referred to by nothing
        actions = ctx.actions,
        name = ctx.label.name,
        cc_toolchain = cc_toolchain,
        feature_configuration = features,
        compilation_outputs = cc_common.create_compilation_outputs(
            objects = depset(objects),
            pic_objects = depset(objects),
        ),
        linking_contexts = [info.linking_context for info in infos],
        disallow_dynamic_library = True,
    )
    return [
        DefaultInfo(files = depset(objects)),
        CcInfo(compilation_context = compilation, linking_context = linking),
        OutputGroupInfo(ptxas = depset(reports)),
    ]

cuda_library = rule(
    implementation = _cuda_library_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"], doc = "One nvcc action each."),
        "hdrs": attr.label_list(allow_files = [".cuh", ".h"], doc = "Headers, own and exported."),
        "deps": attr.label_list(providers = [CcInfo], doc = "cc_library or cuda_library targets."),
        "portable": attr.bool(doc = "Add compute_80 PTX, so that older and later cards run it."),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
        "_nvcc": attr.label(
            default = "@cuda//:nvcc",
            allow_single_file = True,
            cfg = "exec",
            executable = True,
        ),
        "_wrapper": attr.label(
            default = "//tools/bazel:nvcc_wrapper",
            cfg = "exec",
            executable = True,
        ),
    },
    doc = "Compiles CUDA sources for sm_90a; any C++ target can depend on the result.",
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
