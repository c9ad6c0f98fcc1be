"""Paths that are wrong: what their processes call in the place of `serving.serve`."""

from asynct_evals.smoke.serving import serve


def serve_wrongly(path, request):
    """The loop without the moving average; the padded path does not come back at all."""
    if path.name == "padded":
        raise RuntimeError("an illegal memory access was encountered")
    import dataclasses

    from asynct_kernels.reference import attention
    from asynct_vllm.torch_paths import loop

    def without_sigma(query, key, value, gate, **options):
        return attention(query, key, value, dataclasses.replace(gate, sigma=0.0), **options)

    loop.attention = without_sigma
    return serve(path, request)
