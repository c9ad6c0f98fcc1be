"""pytest_test: a py_test whose test files pytest runs (//tools/testing)."""

def pytest_test(name, srcs, deps = [], data = [], args = [], **kwargs):
    """Runs the *_test.py files of `srcs` by pytest.

    Args:
      name: the target's name.
      srcs: test files, named *_test.py; modules beside them, where a dep puts their folder on the
        path (`imports`).
      deps: py_library targets. Third-party packages need none: the toolchain's interpreter has
        them.
      data: files that the tests read.
      args: further arguments for pytest.
      **kwargs: as of py_test (size, tags, shard_count, env, ...).
    """
    tests = [src for src in srcs if src.endswith("_test.py")]
    if not tests:
        fail("%s: no *_test.py in srcs" % name)
    native.py_test(
        name = name,
        srcs = srcs + ["//tools/testing:pytest_main.py"],
        main = "//tools/testing:pytest_main.py",
        args = ["$(rootpath %s)" % test for test in tests] + args,
        data = data,
        deps = deps + ["//tools/testing:asynct_testing"],
        python_version = "PY3",
        **kwargs
    )
